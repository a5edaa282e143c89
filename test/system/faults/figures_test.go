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

// This file has the measurements of TestSurvive, and their presentation.

// figures are the measurements of a run. Times are in milliseconds.
type figures struct {
	Engine  string `json:"engine"`
	Seconds int    `json:"seconds"`
	Keys    int    `json:"keys"`
	Faults  string `json:"faults"`
	Lease   int    `json:"leaseMillis"`
	Calls   int    `json:"calls"`
	Unknown int    `json:"unknown"` // number of writes whose outcome is unknown
	Watched int    `json:"watchedReads"`
	// the last reads must return the value of each of these writes, or of a later write
	Done int `json:"acknowledgedWrites"`
	// Unasked counts members that were lost without a fault, because the machine was too slow for
	// the lease.
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

// loss describes the loss of a switch that was killed or cut off.
type loss struct {
	Position string `json:"position"` // head, middle, tail or cut off
	Switch   string `json:"switch"`
	// These are the longest times without an event. Writes is without a completed write, and Reads
	// is without a completed read of the load's clients. Survivors is without an answer of a
	// remaining switch to a reader of a clean key.
	Writes    float64 `json:"writeOutageMillis"`
	Reads     float64 `json:"readOutageMillis"`
	Survivors float64 `json:"survivorGapMillis"`
	// Machine is the longest time for which a goroutine that only reads the clock did not run. The
	// network does not cause this part of a gap.
	Machine float64 `json:"machineGapMillis"`
}

// join describes how a switch came back into the chain.
type join struct {
	Switch string  `json:"switch"`
	All    float64 `json:"recoveryMillis"`
	// duration of the chain's change as clients see it; a refused client retries after a moment
	Changed float64 `json:"changedMillis"`
	// longest pause of writes as clients see it; a refused client retries after a moment
	Writes  float64 `json:"writePauseMillis"`
	Machine float64 `json:"machineGapMillis"` // the same as in loss
}

// These are targets in milliseconds. On a busy machine, a run may miss them, and reports that. The
// test asserts other, hard limits.
const (
	aimOutage = 300 // time without writes when a switch fails
	aimPause  = 5   // time without writes when a switch with 16,384 slots is brought in
)

// middle returns the median of a figure. The function largest returns its maximum.
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
			continue // this engine was skipped; the output has the reason
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
