package bmv2json

// index holds the maps for lookups by name.
type index struct {
	tables            map[string]*Table
	actionProfiles    map[string]*ActionProfile
	registers         map[string]*Register
	counters          map[string]*Counter
	meters            map[string]*Meter
	valueSets         map[string]*ValueSet
	headers           map[string]*Header
	headerTypes       map[string]*HeaderType
	stacks            map[string]*HeaderStack
	unions            map[string]*HeaderUnion
	unionStacks       map[string]*HeaderUnionStack
	calculations      map[string]*Calculation
	externs           map[string]*ExternInstance
	pipelines         map[string]*Pipeline
	fieldLists        map[int]*FieldList
	learnLists        map[int]*LearnList
	learnNames        map[string]*LearnList
	actionIDs         map[int]*Action
	allTables         []*Table
	allActionProfiles []*ActionProfile
}

// Table returns the table of that name in any pipeline, or nil.
func (p *Program) Table(name string) *Table { return p.index.tables[name] }

// Tables returns the tables of all pipelines. Table.Index is the index in the returned slice.
func (p *Program) Tables() []*Table { return p.index.allTables }

// ActionProfile returns the action profile of that name, or nil.
func (p *Program) ActionProfile(name string) *ActionProfile { return p.index.actionProfiles[name] }

// ActionProfiles returns the action profiles of all pipelines. ActionProfile.Index is the index in
// the returned slice.
func (p *Program) ActionProfiles() []*ActionProfile { return p.index.allActionProfiles }

// Register returns the register array of that name, or nil.
func (p *Program) Register(name string) *Register { return p.index.registers[name] }

// Counter returns the counter (array or direct) of that name, or nil.
func (p *Program) Counter(name string) *Counter { return p.index.counters[name] }

// Meter returns the meter (array or direct) of that name, or nil.
func (p *Program) Meter(name string) *Meter { return p.index.meters[name] }

// ValueSet returns the parser value set of that name, or nil.
func (p *Program) ValueSet(name string) *ValueSet { return p.index.valueSets[name] }

// Header returns the header instance of that name, or nil.
func (p *Program) Header(name string) *Header { return p.index.headers[name] }

// PSA reports whether p4c's PSA back end wrote the program. In a PSA program, ingress and egress
// each have their own parser and deparser.
func (p *Program) PSA() bool { return p.Parser("ingress_parser") != nil }

// Parser returns the parser of that name, or nil.
func (p *Program) Parser(name string) *Parser {
	for _, q := range p.Parsers {
		if q.Name == name {
			return q
		}
	}
	return nil
}

// Deparser returns the deparser of that name, or nil.
func (p *Program) Deparser(name string) *Deparser {
	for _, d := range p.Deparsers {
		if d.Name == name {
			return d
		}
	}
	return nil
}

// Pipeline returns the pipeline of that name ("ingress", "egress"), or nil.
func (p *Program) Pipeline(name string) *Pipeline { return p.index.pipelines[name] }

// FieldList returns the field list with that id, or nil.
func (p *Program) FieldList(id int) *FieldList { return p.index.fieldLists[id] }

// LearnList returns the learn list with that id, or nil.
func (p *Program) LearnList(id int) *LearnList { return p.index.learnLists[id] }

// LearnListNamed returns the learn list of that name, or nil.
func (p *Program) LearnListNamed(name string) *LearnList { return p.index.learnNames[name] }

// FieldNamed returns a field of a header instance. Like BMv2, it resolves the program's aliases
// first, so a target's "queueing_metadata.enq_qdepth" may be a field of another header. The zero
// FieldRef means that the program has no such field.
func (p *Program) FieldNamed(header, field string) FieldRef {
	if r, ok := p.Aliases[header+"."+field]; ok {
		return r
	}
	h := p.Header(header)
	if h == nil {
		return FieldRef{}
	}
	for _, f := range h.Type.Fields {
		if f.Name == field {
			return FieldRef{h, f}
		}
	}
	return FieldRef{}
}
