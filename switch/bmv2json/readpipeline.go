package bmv2json

var matchKinds = map[string]MatchKind{
	"exact": MatchExact, "lpm": MatchLPM, "ternary": MatchTernary, "range": MatchRange,
	"valid": MatchValid, "optional": MatchOptional,
}

func (r *reader) pipelines(root node) {
	for _, n := range root.get("pipelines").list() {
		pl := &Pipeline{Name: n.get("name").str(), ID: n.get("id").int(), Path: n.path}
		for _, an := range n.optList("action_profiles") {
			pl.ActionProfiles = append(pl.ActionProfiles, r.actionProfile(an))
		}
		nodes := map[string]Node{}
		name := func(at node, nn Node) {
			if _, dup := nodes[nn.NodeName()]; dup {
				fail(at.path, "a second node of the control flow named %q", nn.NodeName())
			}
			nodes[nn.NodeName()] = nn
		}
		for _, tn := range n.get("tables").list() {
			t := r.table(tn, pl)
			pl.Tables = append(pl.Tables, t)
			name(tn, t)
		}
		for _, cn := range n.optList("conditionals") {
			c := &Conditional{Name: cn.get("name").str(), ID: cn.get("id").int(), Path: cn.path,
				Source: source(cn),
				Expr:   r.typed(cn.get("expression"), TypeBool)}
			pl.Conditionals = append(pl.Conditionals, c)
			name(cn, c)
		}
		for _, cn := range n.optList("action_calls") {
			c := &ActionCall{Name: cn.get("name").str(), ID: cn.get("id").int(), Path: cn.path}
			c.Action = findID(r.index.actionIDs, "action", cn.get("action_id"))
			if len(c.Action.Params) > 0 {
				fail(cn.path, "calls action %q without the parameters that it has", c.Action.Name)
			}
			pl.ActionCalls = append(pl.ActionCalls, c)
			name(cn, c)
		}

		next := func(at node) Node {
			if at.isNull() {
				return nil
			}
			nn, ok := nodes[at.str()]
			if !ok {
				fail(at.path, "no node of the control flow is named %q", at.str())
			}
			return nn
		}
		for i, tn := range n.get("tables").list() {
			r.nextTables(pl.Tables[i], tn, next)
		}
		for i, cn := range n.optList("conditionals") {
			pl.Conditionals[i].True, pl.Conditionals[i].False = next(cn.opt("true_next")),
				next(cn.opt("false_next"))
		}
		for i, cn := range n.optList("action_calls") {
			pl.ActionCalls[i].Next = next(cn.opt("next_node"))
		}
		pl.Init = next(n.opt("init_table"))
		acyclic(pl)
		add(r.index.pipelines, "pipeline", n, pl.Name, pl)
		r.p.Pipelines = append(r.p.Pipelines, pl)
	}
}

// acyclic fails if the control flow has a loop. P4 has no loops, and an engine would never leave
// one.
func acyclic(pl *Pipeline) {
	const visiting, done = 1, 2
	state := map[Node]int{}
	var visit func(n Node)
	visit = func(n Node) {
		if n == nil || state[n] == done {
			return
		}
		if state[n] == visiting {
			fail(pl.Path, "the control flow comes back to %q", n.NodeName())
		}
		state[n] = visiting
		switch n := n.(type) {
		case *Table:
			for _, m := range n.Next {
				visit(m)
			}
			visit(n.Hit)
			visit(n.Miss)
			visit(n.BaseDefaultNext)
		case *Conditional:
			visit(n.True)
			visit(n.False)
		case *ActionCall:
			visit(n.Next)
		}
		state[n] = done
	}
	visit(pl.Init)
}

func (r *reader) actionProfile(n node) *ActionProfile {
	a := r.namedActionProfile(n, n.get("name"))
	if m := n.opt("max_size"); !m.isNull() {
		a.MaxSize = m.nat(maxArray)
	}
	return a
}

// ownActionProfile reads the action profile of a table that contains its own. p4c wrote this form
// before the format had a list of action profiles.
func (r *reader) ownActionProfile(table node) *ActionProfile {
	return r.namedActionProfile(table, table.get("act_prof_name"))
}

func (r *reader) namedActionProfile(n, name node) *ActionProfile {
	a := &ActionProfile{Name: name.str(), ID: n.get("id").int(), Index: len(r.allActionProfiles),
		Path: n.path}
	if sn := n.opt("selector"); !sn.isNull() {
		a.Selector = &Selector{Algo: sn.get("algo").str()}
		for _, in := range sn.get("input").list() {
			a.Selector.Input = append(a.Selector.Input, r.calcInput(in))
		}
	}
	add(r.index.actionProfiles, "action profile", n, a.Name, a)
	r.allActionProfiles = append(r.allActionProfiles, a)
	return a
}

func (r *reader) table(n node, pl *Pipeline) *Table {
	t := &Table{Name: n.get("name").str(), ID: n.get("id").int(), Index: len(r.allTables),
		Path: n.path, Pipeline: pl}
	kind, ok := matchKinds[n.get("match_type").str()]
	if !ok || kind == MatchValid {
		fail(n.path+".match_type", "%q is not a kind of table (exact, lpm, ternary, range)",
			n.get("match_type").str())
	}
	if kind == MatchOptional {
		kind = MatchTernary
	}
	t.Match = kind
	r.keys(t, n)
	for _, k := range t.Keys {
		need := k.Kind
		switch need {
		case MatchOptional:
			need = MatchTernary
		case MatchValid:
			need = MatchExact
		}
		if need > t.Match {
			fail(n.path+".match_type", "table %q is of kind %s but key %q is %s", t.Name, t.Match,
				k.Name, k.Kind)
		}
	}

	switch what := n.get("type").str(); what {
	case "simple":
		t.Kind = TableSimple
	case "indirect":
		t.Kind = TableIndirect
	case "indirect_ws":
		t.Kind = TableIndirectWS
	default:
		fail(n.path+".type", "%q is not a kind of table (simple, indirect, indirect_ws)", what)
	}
	if t.Kind != TableSimple {
		if n.has("act_prof_name") && !n.has("action_profile") {
			pl.ActionProfiles = append(pl.ActionProfiles, r.ownActionProfile(n))
			t.ActionProfile = pl.ActionProfiles[len(pl.ActionProfiles)-1]
		} else {
			t.ActionProfile = find(r.index.actionProfiles, "action profile", n.get("action_profile"))
		}
		if t.Kind == TableIndirectWS && t.ActionProfile.Selector == nil {
			fail(n.path+".action_profile", "action profile %q has no selector", t.ActionProfile.Name)
		}
		t.ActionProfile.Tables = append(t.ActionProfile.Tables, t)
	}
	if m := n.opt("max_size"); !m.isNull() {
		t.MaxSize = m.nat(1<<31 - 1)
	}
	if b := n.opt("with_counters"); !b.isNull() {
		t.WithCounters = b.boolean()
	}
	if b := n.opt("support_timeout"); !b.isNull() {
		t.SupportTimeout = b.boolean()
	}
	if m := n.opt("direct_meters"); !m.isNull() {
		t.DirectMeter = find(r.index.meters, "meter array", m)
		if !t.DirectMeter.Direct {
			fail(m.path, "meter array %q is not direct", t.DirectMeter.Name)
		}
	}

	if n.has("action_ids") {
		for _, idn := range n.opt("action_ids").list() {
			t.Actions = append(t.Actions, findID(r.index.actionIDs, "action", idn))
		}
	} else {
		for _, an := range n.get("actions").list() {
			t.Actions = append(t.Actions, r.actionNamed(an))
		}
	}
	seen := map[string]bool{}
	for _, a := range t.Actions {
		if seen[a.Name] {
			fail(n.path, "table %q has two actions named %q", t.Name, a.Name)
		}
		seen[a.Name] = true
	}
	r.defaultEntry(t, n)
	r.entries(t, n)
	add(r.index.tables, "table", n, t.Name, t)
	r.allTables = append(r.allTables, t)
	return t
}

func (r *reader) actionNamed(n node) *Action {
	for _, a := range r.p.Actions {
		if a.Name == n.str() {
			return a
		}
	}
	fail(n.path, "no action is named %q", n.str())
	return nil
}

func (r *reader) keys(t *Table, n node) {
	lpm := false
	for _, kn := range n.get("key").list() {
		kind, ok := matchKinds[kn.get("match_type").str()]
		if !ok {
			fail(kn.path+".match_type", "%q is not a match kind", kn.get("match_type").str())
		}
		k := Key{Kind: kind}
		target := kn.get("target")
		if kind == MatchValid {
			k.Field = FieldRef{Header: find(r.index.headers, "header", target)}
		} else {
			k.Field = r.fieldRef(target)
		}
		if k.Field.Field != nil && k.Field.Field.VL {
			fail(target.path, "a key of variable length")
		}
		k.Width = k.Field.Width()
		k.Name = k.Field.String()
		if nn := kn.opt("name"); !nn.isNull() {
			k.Name = nn.str()
		}
		if m := kn.opt("mask"); !m.isNull() {
			k.Mask = m.hexBytes(k.Width)
		}
		if kind == MatchLPM {
			if lpm {
				fail(kn.path, "table %q has a second lpm key: a table has one at most, as with "+
					"BMv2; make the others ternary", t.Name)
			}
			lpm = true
		}
		t.Keys = append(t.Keys, k)
	}
}

// actionData reads the arguments of a call of action a.
func actionData(a *Action, n node) [][]byte {
	l := n.list()
	if len(l) != len(a.Params) {
		fail(n.path, "action %q has %d parameters, found %d", a.Name, len(a.Params), len(l))
	}
	out := make([][]byte, len(l))
	for i, d := range l {
		out[i] = d.hexBytes(a.Params[i].Width)
	}
	return out
}

func (r *reader) tableAction(t *Table, idn node) (*Action, int) {
	a := findID(r.index.actionIDs, "action", idn)
	for i, b := range t.Actions {
		if a == b {
			return a, i
		}
	}
	fail(idn.path, "table %q does not list action %q", t.Name, a.Name)
	return nil, -1
}

func (r *reader) defaultEntry(t *Table, n node) {
	dn := n.opt("default_entry")
	if dn.isNull() {
		return
	}
	d := &DefaultEntry{}
	d.Action, d.ActionIndex = r.tableAction(t, dn.get("action_id"))
	d.Params = actionData(d.Action, dn.get("action_data"))
	if b := dn.opt("action_const"); !b.isNull() {
		d.ConstAction = b.boolean()
	}
	if b := dn.opt("action_entry_const"); !b.isNull() {
		d.ConstEntry = b.boolean()
	}
	if t.Kind != TableSimple && d.ConstAction {
		fail(dn.path, "a const default action on table %q, whose actions are in an action profile",
			t.Name)
	}
	t.Default = d
}

func (r *reader) entries(t *Table, n node) {
	en := n.opt("entries")
	if en.isNull() {
		return
	}
	if t.Kind != TableSimple {
		fail(en.path, "const entries in table %q, whose actions are in an action profile", t.Name)
	}
	t.Const = true
	for _, e := range en.list() {
		c := ConstEntry{Path: e.path}
		mk := e.get("match_key").tuple(len(t.Keys))
		for i, kn := range mk {
			k := t.Keys[i]
			kind, ok := matchKinds[kn.get("match_type").str()]
			if !ok || kind != k.Kind {
				fail(kn.path+".match_type", "key %d of table %q is %s, the entry says %q", i,
					t.Name, k.Kind, kn.get("match_type").str())
			}
			var v KeyValue
			switch kind {
			case MatchExact:
				v.Value = kn.get("key").hexBytes(k.Width)
			case MatchValid:
				v.Value = []byte{0}
				if kn.get("key").boolean() {
					v.Value[0] = 1
				}
			case MatchLPM:
				v.Value, v.PrefixLen = kn.get("key").hexBytes(k.Width),
					kn.get("prefix_length").nat(k.Width)
			case MatchTernary, MatchOptional:
				v.Value, v.Mask = kn.get("key").hexBytes(k.Width), kn.get("mask").hexBytes(k.Width)
			case MatchRange:
				v.Value, v.Mask = kn.get("start").hexBytes(k.Width), kn.get("end").hexBytes(k.Width)
			}
			c.Match = append(c.Match, v)
		}
		an := e.get("action_entry")
		c.Action, c.ActionIndex = r.tableAction(t, an.get("action_id"))
		c.Params = actionData(c.Action, an.get("action_data"))
		if p := e.opt("priority"); !p.isNull() {
			c.Priority = p.nat(maxPriority)
		}
		t.ConstEntries = append(t.ConstEntries, c)
	}
}

func (r *reader) nextTables(t *Table, n node, next func(node) Node) {
	nn := n.get("next_tables")
	m := nn.object()
	_, hit := m["__HIT__"]
	_, miss := m["__MISS__"]
	switch {
	case hit && miss && len(m) == 2:
		t.HitMiss, t.Hit, t.Miss = true, next(nn.opt("__HIT__")), next(nn.opt("__MISS__"))
	case hit || miss:
		fail(nn.path, "__HIT__ and __MISS__ must both be there, and nothing else")
	case len(m) != len(t.Actions):
		fail(nn.path, "table %q has %d actions but %d next nodes", t.Name, len(t.Actions), len(m))
	default:
		for _, a := range t.Actions {
			t.Next = append(t.Next, next(nn.get(a.Name)))
		}
	}
	t.BaseDefaultNext = next(n.opt("base_default_next"))
}
