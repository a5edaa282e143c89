// Package bpf has the code that the eBPF programs in C share, and checks the committed outputs.
//
// bpf2go compiles each program, as the line "go:generate" in its folder says. It writes an object
// and the Go code that loads it. Both are committed, so that only people who change the C code need
// clang. compiled.txt has the version of clang, and the SHA-256 of each source and output.
package bpf

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "compile anew, and write compiled.txt")

const root, manifest = "../..", "compiled.txt"

var generate = regexp.MustCompile(`(?m)^//go:generate go tool bpf2go (.*)$`)

// TestCompiled: the committed outputs match the sources. The test compares hashes and, if the same
// version of clang is installed, compiles the sources again.
func TestCompiled(t *testing.T) {
	programs := find(t) // arguments of bpf2go, by the program's folder
	clang, missing := clangVersion()
	if *update {
		if missing != nil {
			t.Fatal(missing)
		}
		for folder, arguments := range programs {
			compile(t, folder, folder, arguments)
		}
		if err := os.WriteFile(manifest, record(t, programs, clang), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	recorded, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatalf("%v: run make bpf", err)
	}
	compiler, _, _ := strings.Cut(string(recorded), "\n")
	if now := record(t, programs, compiler); !bytes.Equal(now, recorded) {
		t.Fatalf("sources and outputs have drifted: run make bpf\n%s", differences(recorded, now))
	}
	switch {
	case missing != nil:
		t.Skipf("compared by hash alone: %v", missing)
	case clang != compiler:
		t.Skipf("compared by hash alone: the installed clang is %q, they were compiled with %q",
			clang, compiler)
	}
	for folder, arguments := range programs {
		again := t.TempDir()
		compile(t, folder, again, arguments)
		for _, name := range outputs(t, again) {
			want, err := os.ReadFile(filepath.Join(folder, filepath.Base(name)))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s/%s is not what clang writes now (%v): run make bpf", folder,
					filepath.Base(name), err)
			}
		}
	}
}

// find returns the folders of programs, with the arguments of bpf2go.
func find(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "out"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if m := generate.FindSubmatch(text); m != nil {
			found[filepath.Dir(path)] = string(m[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 3 {
		t.Fatalf("%d folders have a program in C: there are more", len(found))
	}
	return found
}

func compile(t *testing.T, folder, into, arguments string) {
	t.Helper()
	into, err := filepath.Abs(into)
	if err != nil {
		t.Fatal(err)
	}
	absolute, err := filepath.Abs(folder)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", append([]string{"tool", "bpf2go", "-go-package",
		filepath.Base(absolute), "-output-dir", into}, strings.Fields(arguments)...)...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", folder, err, out)
	}
}

// clangVersion returns the version of clang, or an error that says why nothing can be compiled.
func clangVersion() (version string, err error) {
	if _, err := exec.LookPath("llvm-strip"); err != nil {
		return "", err
	}
	out, err := exec.Command("clang", "--version").Output()
	return regexp.MustCompile(`clang version \d+\.\d+\.\d+`).FindString(string(out)), err
}

// outputs returns the files that bpf2go has written into a folder.
func outputs(t *testing.T, folder string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*_bpfel.*"))
	if err != nil || len(names) != 2 {
		t.Fatalf("%s: an object and a Go file are to be there, not %v (%v)", folder, names, err)
	}
	return names
}

// record returns the expected content of compiled.txt.
func record(t *testing.T, programs map[string]string, clang string) []byte {
	t.Helper()
	names := []string{"bpf.h"}
	for folder := range programs {
		for _, pattern := range []string{"*.c", "*.h"} {
			// cannot fail, because the patterns are well-formed
			found, _ := filepath.Glob(filepath.Join(folder, pattern))
			names = append(names, found...)
		}
		names = append(names, outputs(t, folder)...)
	}
	slices.Sort(names)
	text := clang + "\n"
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("%x %s\n", sha256.Sum256(content), filepath.ToSlash(name))
	}
	return []byte(text)
}

// differences returns the lines that only one of two texts has.
func differences(before, now []byte) string {
	was, is := strings.Split(string(before), "\n"), strings.Split(string(now), "\n")
	gone := slices.DeleteFunc(slices.Clone(was), func(l string) bool { return slices.Contains(is, l) })
	come := slices.DeleteFunc(is, func(l string) bool { return slices.Contains(was, l) })
	return "committed: " + strings.Join(gone, "\n           ") + "\nnow:       " +
		strings.Join(come, "\n           ")
}
