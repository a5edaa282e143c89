package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// The measurements of TestSurvive, and their presentation.

// figures are the measurements of a run. Times are in milliseconds.
type figures struct {
	Engine  string `json:"engine"`
	Seconds int    `json:"seconds"`
	Keys    int    `json:"keys"`
	Faults  string `json:"faults"`
	Lease   int    `json:"leaseMillis"`
	Calls   int    `json:"calls"`
	Unknown int    `json:"unknown"` // writes of unknown outcome
	Watched int    `json:"watchedReads"`
	Done    int    `json:"acknowledgedWrites"` // the last reads must show each of them, or a later write
	// members lost without a fault, because the machine was too slow for the lease
	Unasked int      `json:"lostByThemselves"`
	Failure []loss   `json:"failures"`
	Joining []join   `json:"recoveries"`
	Large   *large   `json:"largeRecovery,omitempty"`
	Missed  []string `json:"aimsMissed"`
}

// large is the recovery of a chain with many slots.
type large struct {
	Slots int `json:"slots"`
	join
}

// loss is a switch that was killed or cut off.
type loss struct {
	Position string `json:"position"` // head, middle, tail or cut off
	Switch   string `json:"switch"`
	// The longest times without a completed write (Writes), without a completed read of the load's
	// clients (Reads), and without an answer of a remaining switch to a reader of a clean key
	// (Survivors).
	Writes    float64 `json:"writeOutageMillis"`
	Reads     float64 `json:"readOutageMillis"`
	Survivors float64 `json:"survivorGapMillis"`
	// Machine is the longest time for which a goroutine that only reads the clock did not run. The
	// network is not to blame for that part.
	Machine float64 `json:"machineGapMillis"`
}

// join is a switch that came back.
type join struct {
	Switch  string  `json:"switch"`
	All     float64 `json:"recoveryMillis"`
	Changed float64 `json:"changedMillis"`    // as clients see it: a refused client retries after a moment
	Writes  float64 `json:"writePauseMillis"` // as clients see it: a client whose write is refused retries after a moment
	Machine float64 `json:"machineGapMillis"` // as in loss
}

// Targets in milliseconds. On a busy machine a run may miss them, and reports that. Hard limits are
// assertions in the test.
const (
	aimOutage = 300 // without writes, when a switch fails
	aimPause  = 5   // without writes, when a switch with 16,384 slots is brought in
)

// middle returns the median of a figure, and largest its maximum.
func middle[T any](of []T, figure func(T) float64) float64 {
	all := figuresOf(of, figure)
	return all[len(all)/2]
}

func largest[T any](of []T, figure func(T) float64) float64 { return slices.Max(figuresOf(of, figure)) }

func figuresOf[T any](of []T, figure func(T) float64) []float64 {
	var all []float64
	for _, x := range of {
		all = append(all, figure(x))
	}
	slices.Sort(all)
	return all
}

// summary formats the figures in a few lines.
func (f *figures) summary() string {
	text := fmt.Sprintf("%s, %d s, %d clients, %s:\n  %d calls, %d acknowledged writes, none lost; %d writes of unknown outcome\n", f.Engine, f.Seconds, clients, f.Faults, f.Calls, f.Done, f.Unknown)
	for _, position := range []string{"head", "middle", "tail", "cut off"} {
		of := slices.DeleteFunc(slices.Clone(f.Failure), func(x loss) bool { return x.Position != position })
		if len(of) == 0 {
			continue
		}
		text += fmt.Sprintf("  %-8s lost %2d times: no write for %.0f ms (median), %.0f (longest); no answer to a reader of clean keys at a switch that is left for %.0f, %.0f\n", position, len(of),
			middle(of, func(x loss) float64 { return x.Writes }), largest(of, func(x loss) float64 { return x.Writes }),
			middle(of, func(x loss) float64 {
				return x.Survivors
			}), largest(of, func(x loss) float64 { return x.Survivors }))
	}
	text += fmt.Sprintf("  %d recoveries with %d keys: the chain changed in %.0f ms (median), %.0f (longest); no write at any client for %.0f, %.0f\n", len(f.Joining), f.Keys,
		middle(f.Joining, func(x join) float64 {
			return x.Changed
		}), largest(f.Joining, func(x join) float64 { return x.Changed }),
		middle(f.Joining, func(x join) float64 {
			return x.Writes
		}), largest(f.Joining, func(x join) float64 { return x.Writes }))
	if f.Unasked > 0 {
		text += fmt.Sprintf("  %d members were lost by themselves: this machine had no processor for them for longer than a lease\n", f.Unasked)
	}
	if x := f.Large; x != nil {
		text += fmt.Sprintf("  a recovery with %d keys: the chain changed in %.1f ms, no write at any client for %.1f, filled in %.1f s\n", x.Slots, x.Changed, x.Writes, x.All/1000)
	}
	return text
}

// missed records the targets that were missed.
func (f *figures) missed() {
	f.Missed = []string{}
	for _, x := range f.Failure {
		if x.Writes > aimOutage {
			f.Missed = append(f.Missed, fmt.Sprintf("%s (%s) lost: no write for %.0f ms, and the aim is %d", x.Switch, x.Position, x.Writes, aimOutage))
		}
	}
	if x := f.Large; x != nil && x.Changed > aimPause {
		f.Missed = append(f.Missed, fmt.Sprintf("%s brought in with %d slots: the chain changed in %.1f ms, and the aim is %d", x.Switch, x.Slots, x.Changed, aimPause))
	}
}

// mergeFigures merges the files of all engines into one.
func mergeFigures(t *testing.T, folder string, engines []string) {
	said := func(name string, args ...string) string {
		b, _ := exec.Command(name, args...).Output()
		return strings.TrimSpace(string(b))
	}
	commit := said("git", "rev-parse", "HEAD")
	if said("git", "status", "--porcelain") != "" {
		commit += "-dirty"
	}
	cpu := "unknown"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
			}
		}
	}
	all := map[string]any{"commit": commit, "date": time.Now().UTC().Format(time.RFC3339),
		"kernel": said("uname", "-r"), "cpus": runtime.NumCPU(), "cpu": cpu, "go": runtime.Version()}
	if v := said("simple_switch_grpc", "--version"); v != "" {
		all["simple_switch_grpc"] = v
	}
	var runs []figures
	for _, e := range engines {
		b, err := os.ReadFile(filepath.Join(folder, "survive-"+e+".json"))
		if err != nil {
			continue // skipped; the output has the reason
		}
		var f figures
		if err := json.Unmarshal(b, &f); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, f)
	}
	all["runs"] = runs
	b, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "survive.json"), append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
