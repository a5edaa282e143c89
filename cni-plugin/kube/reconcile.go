package kube

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/kubernetes/v1alpha1"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// specChanged leaves out what the leader itself has written.
var specChanged = predicate.GenerationChangedPredicate{}

const (
	// restless is the time between two looks at a network where something is under way, restful where nothing is.
	restless = time.Second
	restful  = 15 * time.Second
	// keysEvery is the least time between two writings of a status where nothing has changed but the number of keys: hot keys come and go all the time, and each writing is
	// one in the cluster's etcd.
	keysEvery = time.Minute
)

// shown is a status that was written.
type shown struct {
	status v1alpha1.NetcraqChainStatus
	at     time.Time
}

// Reconcile implements reconcile.Reconciler: it makes the network and the chains what the API server says, as far as that can be had now, and says there how they are.
func (l *leader) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	r := l.current()
	if r == nil {
		return reconcile.Result{}, nil
	}
	r.mine.Lock()
	defer r.mine.Unlock()
	if r.ctx.Err() != nil {
		return reconcile.Result{}, nil
	}
	again, err := r.reconcile(ctx)
	return reconcile.Result{RequeueAfter: again}, err
}

func (r *leaderTerm) reconcile(ctx context.Context) (again time.Duration, err error) {
	l := r.l
	var list v1alpha1.NetcraqChainList
	if err := l.client.List(ctx, &list); err != nil {
		return 0, fmt.Errorf("listing the chains: %w", err)
	}
	nodes, err := listNodes(ctx, l.client)
	if err != nil {
		return 0, err
	}
	now, ready, err := r.look(ctx)
	if err != nil {
		return 0, err
	}
	inChain := func(name string) bool {
		for _, c := range list.Items {
			if slices.Contains(r.members(c.Name, now), name) {
				return true
			}
		}
		return false
	}
	places, alive := nodes, func() []node {
		return slices.DeleteFunc(slices.Clone(nodes), func(n node) bool { return !l.pods.alive(n.Name) })
	}
	if f := l.o.Fabric; f != nil {
		places = placesOf(f)
		alive = func() []node { return answering(ctx, places) }
		if err := releaseIndexes(ctx, l.client, nodes); err != nil {
			return 0, err
		}
	} else {
		again = r.assignIndexes(ctx, nodes, inChain)
		l.pods.follow(r.ctx, agentsOf(nodes))
	}

	accepted, refused := accept(slices.DeleteFunc(slices.Clone(list.Items), func(c v1alpha1.NetcraqChain) bool { return c.DeletionTimestamp != nil }))
	load := map[string]int{}
	for _, c := range accepted {
		for _, m := range r.members(c.Name, now) {
			load[m]++
		}
	}
	leaving := map[string]bool{}
	formed := r.stillThere(ctx, now, accepted, leaving)
	if len(formed) > 0 {
		again = restless
	}
	formed, waiting := r.form(formed, accepted, now, alive, load)
	if len(waiting) > 0 {
		again = restless
	}
	for _, c := range accepted {
		leaving[c.Name] = c.Spec.Placement.Policy == v1alpha1.PlaceNone
	}
	r.leave(leaving)
	trouble, err := r.applyAll(nodes, formed, now)
	if err != nil {
		again = restless
	}
	if r.hosted != nil {
		if now, ready, err = r.look(ctx); err != nil {
			return 0, err
		}
		r.hosted.rules.follow(accepted)
	}
	steady := r.settled(ready)
	for _, c := range formed {
		i := slices.IndexFunc(now, func(x api.Chain) bool { return x.Name == c.name })
		if i < 0 || trouble[c.name] != nil || c.spec.Length == 0 {
			continue
		}
		if s := next(&c.spec, &now[i], places, load, func(node string) bool { return steady(c.name, node) }); s != nil {
			r.take(c.name, s)
		}
		if !now[i].Ready || len(now[i].Members) != int(c.spec.Length) {
			again = restless
		}
	}
	for i := range list.Items {
		c := &list.Items[i]
		var is *api.Chain
		if j := slices.IndexFunc(now, func(x api.Chain) bool { return x.Name == c.Name }); j >= 0 && refused[c.Name] == "" {
			is = &now[j]
		}
		_, inherited := r.inherited[c.Name]
		gone := is == nil && !inherited
		if err := l.hold(ctx, c, c.DeletionTimestamp == nil || !gone); err != nil {
			return 0, err
		}
		if c.DeletionTimestamp != nil {
			again = restless
			continue
		}
		if err := r.show(ctx, c, is, refused[c.Name], waiting[c.Name], trouble[c.Name]); err != nil {
			return 0, err
		}
	}
	if again == 0 {
		again = restful
		if l.fast.pending() {
			again = reviewEvery
		}
	}
	return again, nil
}

// assignIndexes sees to it that each node has a number, and none that is gone.
func (r *leaderTerm) assignIndexes(ctx context.Context, nodes []node, inChain func(string) bool) (again time.Duration) {
	l := r.l
	inconsistent, without := indexesInconsistent(nodes, inChain)
	if without != r.without && without > 0 {
		l.log.Error("some nodes have no number, so their switches are in no chain, and their pods reach none", "nodes", without, "numbers", v1alpha1.MaxNodes)
	}
	r.without = without
	if !inconsistent {
		return 0
	}
	if err := assignIndex(ctx, l.client, l.now, inChain); err != nil {
		l.log.Warn("numbers of nodes", "err", err)
		return restless
	}
	return 0
}

// agentsOf are the addresses of nodes' agents.
func agentsOf(nodes []node) map[string]string {
	out := map[string]string{}
	for _, n := range nodes {
		if n.there && n.status.Agent != "" {
			out[n.Name] = n.status.Agent
		}
	}
	return out
}

// stillThere are the chains that nobody wants any more and that hold keys, which have to go first: they are marked as leaving.
func (r *leaderTerm) stillThere(ctx context.Context, now []api.Chain, accepted []*v1alpha1.NetcraqChain, leaving map[string]bool) (formed []formedChain) {
	wanted := func(name string) bool {
		return slices.ContainsFunc(accepted, func(a *v1alpha1.NetcraqChain) bool { return a.Name == name })
	}
	for _, c := range now {
		delete(r.inherited, c.Name)
		if wanted(c.Name) {
			continue
		}
		leaving[c.Name] = true
		gone, err := r.drain(ctx, c.Name)
		if err != nil {
			r.l.log.Warn("emptying a chain that is to go", "chain", c.Name, "err", err)
		}
		if !gone || !r.isLeaving(c.Name) {
			formed = append(formed, formedChain{c.Name, v1alpha1.NetcraqChainSpec{ID: int32(c.ID), Profile: int32(r.hosted.profile), LeaseMillis: int32(c.LeaseMillis)}, r.members(c.Name, now)})
		} else {
			delete(r.recorded, c.Name) // one of this name that is made later is another one
		}
	}
	for name, spec := range r.inherited { // they went while nobody led
		if wanted(name) {
			continue
		}
		spec.Profile = v1alpha1.DefaultProfile // of the values nothing is needed any more
		if len(formed) > 0 {
			spec.Profile = formed[0].spec.Profile
		} else if len(accepted) > 0 {
			spec.Profile = accepted[0].Spec.Profile
		}
		leaving[name] = true
		formed = append(formed, formedChain{name, spec, r.recorded[name]})
	}
	return formed
}

// form adds the chains that are wanted to those that are still there: as they are, or with their first members. waiting says what the others wait for. A chain begins when all its members answer: one that does not would keep it from that,
// so those that do (alive) are asked for when a chain is to begin.
func (r *leaderTerm) form(formed []formedChain, accepted []*v1alpha1.NetcraqChain, now []api.Chain, alive func() []node, load map[string]int) (all []formedChain, waiting map[string]string) {
	waiting = map[string]string{}
	for _, c := range accepted {
		members := r.members(c.Name, now)
		switch {
		case members != nil:
		case len(formed) > 0 && c.Spec.Profile != formed[0].spec.Profile:
			waiting[c.Name] = fmt.Sprintf("the chain %s, which has another profile, is not gone yet", formed[0].name)
		default:
			if _, ok := r.since[c.Name]; !ok {
				r.since[c.Name] = time.Now()
			}
			var why string
			if members, why = form(&c.Spec, alive(), load, time.Since(r.since[c.Name])); members == nil {
				waiting[c.Name] = why
			}
			for _, m := range members {
				load[m]++
			}
		}
		if members != nil {
			formed = append(formed, formedChain{c.Name, c.Spec, members})
		}
	}
	return formed, waiting
}

// applyAll has the network be as it should, or, if that cannot be had, as far as it was: what is new must not be in the way of what is there. trouble has what is wrong, by chains.
func (r *leaderTerm) applyAll(nodes []node, formed []formedChain, now []api.Chain) (trouble map[string]error, err error) {
	trouble = map[string]error{}
	err = r.apply(nodes, formed, len(now) > 0)
	if r.failed.isNew(err) {
		r.l.log.Error("the network is not as it should be", "err", err)
	}
	if err == nil {
		return nil, nil
	}
	old := slices.DeleteFunc(slices.Clone(formed), func(f formedChain) bool {
		return !slices.ContainsFunc(now, func(c api.Chain) bool { return c.Name == f.name })
	})
	retried := err
	if len(old) > 0 && len(old) < len(formed) {
		retried = r.apply(nodes, old, true)
	}
	for _, f := range formed {
		if retried != nil || !slices.ContainsFunc(old, func(o formedChain) bool { return o.name == f.name }) {
			trouble[f.name] = err
		}
	}
	return trouble, err
}

// Finalizer keeps a chain that is deleted until it holds no keys: were the agents removed before, nobody could take them out of the network, and gateways would wait for that.
const Finalizer = "netcraq.io/keys"

// hold sees to it that a chain's resource has the finalizer, or has not.
func (l *leader) hold(ctx context.Context, c *v1alpha1.NetcraqChain, hold bool) error {
	if controllerutil.ContainsFinalizer(c, Finalizer) == hold {
		return nil
	}
	c = c.DeepCopy()
	if hold {
		if c.DeletionTimestamp != nil {
			return nil // too late
		}
		controllerutil.AddFinalizer(c, Finalizer)
	} else {
		controllerutil.RemoveFinalizer(c, Finalizer)
	}
	if err := l.client.Update(ctx, c); ignoreGone(err) != nil {
		return fmt.Errorf("the finalizer of the chain %s: %w", c.Name, err)
	}
	return nil
}

// look asks the controller, if there is one, how chains are and which switches can be worked with.
func (r *leaderTerm) look(ctx context.Context) (chains []api.Chain, ready map[string]bool, err error) {
	if r.hosted == nil {
		return nil, nil, nil
	}
	if chains, err = r.hosted.c.Chains(ctx); err != nil {
		return nil, nil, err
	}
	switches, err := r.hosted.c.Switches(ctx)
	if err != nil {
		return nil, nil, err
	}
	ready = map[string]bool{}
	for _, s := range switches {
		if s.Ready {
			ready[s.Name] = true
		}
	}
	return chains, ready, nil
}

// apply has the controller control the network as it is now. some: there are chains in it, which only an update takes away, since that makes sure that they hold nothing.
func (r *leaderTerm) apply(nodes []node, formed []formedChain, some bool) error {
	profile := 0
	switch {
	case len(formed) > 0:
		profile = int(formed[0].spec.Profile)
	case r.hosted != nil && some:
		profile = r.hosted.profile
	default:
		return r.host(nil, 0)
	}
	if r.program.Profile != strconv.Itoa(profile) {
		p, err := writeProgram(r.dir, profile)
		if err != nil {
			return err
		}
		r.program = p
	}
	spec, err := r.network(nodes, formed)
	if err != nil {
		return err
	}
	t, err := topology.New(spec, "the cluster")
	if err != nil {
		return err
	}
	return r.host(t, profile)
}

// network is what the controller is told of. With a fabric the switches, links and hosts are those of its file.
func (r *leaderTerm) network(nodes []node, formed []formedChain) (topology.Spec, error) {
	a := addressing{r.l.o.Services, r.l.o.Switches}
	if f := r.l.o.Fabric; f != nil {
		chains, err := a.chains(formed)
		return f.Spec(r.program, chains), err
	}
	open, err := r.l.fast.open(r.ctx)
	if err != nil {
		return topology.Spec{}, err
	}
	spec, leftOut, err := a.build(r.program, nodes, r.l.pods.all(), open, r.l.o.Lead.PodRate, formed)
	if leftOut > 0 && leftOut != r.leftOut {
		r.l.log.Warn("some pods are no hosts of the network: their addresses are taken, or there are too many", "pods", leftOut)
	}
	r.leftOut = leftOut
	return spec, err
}

// indexesInconsistent says whether a node needs a number that there is, or one is to be taken back, as far as the cache knows; without is how many nodes go without, since all are
// given away.
func indexesInconsistent(nodes []node, inChain func(string) bool) (inconsistent bool, without int) {
	taken := map[int32]bool{}
	for _, n := range nodes {
		switch {
		case n.number == 0 && n.there && n.Address.IsValid():
			without++
		case n.number == 0:
		case taken[n.number] || !n.there && !inChain(n.Name):
			inconsistent = true
		default:
			taken[n.number] = true
		}
	}
	if len(taken) < v1alpha1.MaxNodes && without > 0 {
		return true, 0
	}
	return inconsistent, without
}

// show writes a chain's status where it has changed.
func (r *leaderTerm) show(ctx context.Context, c *v1alpha1.NetcraqChain, is *api.Chain, refused, waiting string, trouble error) error {
	was := c.Status
	if s, ok := r.shown[c.Name]; ok {
		was = s.status // the cache may not have it yet
	}
	to := status(c, was, is, refused, waiting, trouble)
	if to.PlacedKeys != was.PlacedKeys && time.Since(r.shown[c.Name].at) < keysEvery {
		same := to
		same.PlacedKeys = was.PlacedKeys
		if equality.Semantic.DeepEqual(same, was) {
			return nil
		}
	}
	if equality.Semantic.DeepEqual(to, c.Status) {
		r.shown[c.Name] = shown{to, r.shown[c.Name].at}
		return nil
	}
	fresh := &v1alpha1.NetcraqChain{}
	if err := r.l.client.Get(ctx, clientKey(c.Name), fresh); err != nil {
		return ignoreGone(err)
	}
	fresh.Status = to
	if err := r.l.client.Status().Update(ctx, fresh); err != nil {
		return ignoreGone(err)
	}
	r.shown[c.Name] = shown{to, time.Now()}
	return nil
}

// status is how a chain is.
func status(c *v1alpha1.NetcraqChain, was v1alpha1.NetcraqChainStatus, is *api.Chain, refused, waiting string, trouble error) v1alpha1.NetcraqChainStatus {
	s := v1alpha1.NetcraqChainStatus{ObservedGeneration: c.Generation, Conditions: slices.Clone(was.Conditions)}
	set := func(kind string, yes bool, reason, message string) {
		state := metav1.ConditionFalse
		if yes {
			state = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kind, Status: state, Reason: reason, Message: message, ObservedGeneration: c.Generation})
	}
	if refused != "" {
		set(v1alpha1.ConditionAccepted, false, "Conflict", refused)
		set(v1alpha1.ConditionReady, false, "NotAccepted", "the chain is not formed")
		set(v1alpha1.ConditionFullLength, false, "NotAccepted", "the chain is not formed")
		return s
	}
	set(v1alpha1.ConditionAccepted, true, "Accepted", "")
	if is == nil {
		reason, message := "WaitingForNodes", waiting
		if trouble != nil {
			reason, message = "NotInstalled", trouble.Error()
		}
		set(v1alpha1.ConditionReady, false, reason, message)
		set(v1alpha1.ConditionFullLength, false, reason, message)
		return s
	}
	s.ServiceAddress, s.Epoch, s.PlacedKeys, s.Slots = is.ServiceAddress, int32(is.Epoch), int32(is.Keys), int32(is.Slots)
	for _, m := range is.Members {
		s.Members = append(s.Members, v1alpha1.Member{Node: m.Switch, Role: m.Role, Ready: m.Ready && m.LeaseLive})
	}
	var names []string
	for _, m := range s.Members {
		names = append(names, m.Node)
	}
	s.Length, s.Order = int32(len(names)), strings.Join(names, " ")
	switch {
	case trouble != nil:
		set(v1alpha1.ConditionReady, false, "NotInstalled", trouble.Error())
	case is.Ready:
		set(v1alpha1.ConditionReady, true, "Serving", "every member has the configuration and may answer")
	default:
		set(v1alpha1.ConditionReady, false, "NotServing", is.Reason)
	}
	if s.Length == c.Spec.Length {
		set(v1alpha1.ConditionFullLength, true, "AsAsked", "")
	} else {
		set(v1alpha1.ConditionFullLength, false, "NodesMissing", fmt.Sprintf("%d of %d members", s.Length, c.Spec.Length))
	}
	return s
}
