package plan

import (
	"cmp"
	"maps"
	"slices"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
)

// part is a set of pipelets that stay together because they share readers.
type part struct {
	pipelets []*pipeletapi.Pipelet
	weight   int // number of workers
	on       string
}

// Spread assigns each pipelet, by NAMESPACE/NAME, to a replica. Pipelets that share a reader are on
// one replica, together with those that share another reader with them. A replica that is alive
// keeps its pipelets, according to Status.Assigned, because a pipelet stops for a moment when it
// moves. Such a set of pipelets moves only if that reduces the load of the most loaded replica by a
// tenth of the mean load. The load of a replica is its number of workers. Without replicas the
// result is empty. The result depends only on the arguments. If consolidate is false, each pipelet
// is assigned separately.
func Spread(all []pipeletapi.Pipelet, replicas []string, consolidate bool) map[string]string {
	if len(replicas) == 0 {
		return nil
	}
	load := map[string]int{}
	for _, r := range replicas {
		load[r] = 0
	}
	parts := partition(all, consolidate)
	for _, p := range parts {
		if p.on = p.holder(load); p.on != "" {
			load[p.on] += p.weight
		}
	}
	for _, p := range parts { // assign the largest parts first
		if p.on == "" {
			p.on = least(load)
			load[p.on] += p.weight
		}
	}
	balance(parts, load)
	out := map[string]string{}
	for _, p := range parts {
		for _, x := range p.pipelets {
			out[id(x)] = p.on
		}
	}
	return out
}

func id(p *pipeletapi.Pipelet) string { return p.Namespace + "/" + p.Name }

// partition divides the pipelets into parts, and returns the largest part first.
func partition(all []pipeletapi.Pipelet, consolidate bool) (parts []*part) {
	byKey := map[string]*part{} // if a part was merged into another part, its keys map to the merged part
	joined := map[*part]*part{}
	root := func(p *part) *part {
		for joined[p] != nil {
			p = joined[p]
		}
		return p
	}
	for i := range all {
		x := &all[i]
		own := &part{pipelets: []*pipeletapi.Pipelet{x}}
		if !x.Spec.Suspend {
			own.weight = len(x.Spec.Src) * len(x.Spec.Dst)
		}
		parts = append(parts, own)
		if !consolidate {
			continue
		}
		for s := range x.Spec.Src {
			key := Key(x, s)
			if other := byKey[key]; other != nil {
				if a, b := root(other), root(own); a != b {
					a.pipelets, a.weight = append(a.pipelets, b.pipelets...), a.weight+b.weight
					joined[b] = a
				}
			}
			byKey[key] = own
		}
	}
	parts = slices.DeleteFunc(parts, func(p *part) bool { return joined[p] != nil })
	for _, p := range parts {
		slices.SortFunc(p.pipelets, func(a, b *pipeletapi.Pipelet) int { return cmp.Compare(id(a), id(b)) })
	}
	slices.SortFunc(parts, func(a, b *part) int {
		return cmp.Or(-cmp.Compare(a.weight, b.weight), cmp.Compare(id(a.pipelets[0]), id(b.pipelets[0])))
	})
	return parts
}

// holder returns the live replica that runs the largest portion of a part. It returns "" if no live
// replica runs any of it.
func (p *part) holder(load map[string]int) (best string) {
	votes := map[string]int{}
	for _, x := range p.pipelets {
		if _, lives := load[x.Status.Assigned]; lives {
			votes[x.Status.Assigned] += 1 + len(x.Spec.Src)*len(x.Spec.Dst)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(votes)) {
		if votes[r] > votes[best] {
			best = r
		}
	}
	return best
}

// least returns the replica with the lowest load, and most returns the replica with the highest
// load.
func least(load map[string]int) string { return extreme(load, -1) }
func most(load map[string]int) string  { return extreme(load, 1) }

func extreme(load map[string]int, sign int) string {
	names := slices.Sorted(maps.Keys(load))
	best := names[0]
	for _, r := range names {
		if sign*load[r] > sign*load[best] {
			best = r
		}
	}
	return best
}

// balance moves parts from the most loaded replica to the least loaded replica, while the gain is
// large enough.
func balance(parts []*part, load map[string]int) {
	total := 0
	for _, n := range load {
		total += n
	}
	for range parts {
		from, to := most(load), least(load)
		between := load[from] - load[to]
		var move *part
		gain := total / (10 * len(load))
		for _, p := range parts {
			if g := min(p.weight, between-p.weight); p.on == from && g > gain {
				move, gain = p, g
			}
		}
		if move == nil {
			return
		}
		move.on = to
		load[from] -= move.weight
		load[to] += move.weight
	}
}
