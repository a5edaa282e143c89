package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

var digest = "sha256:" + strings.Repeat("0123456789abcdef", 4)

// TestDescribe describes an image that contains this test binary. The modules of the binary are
// known.
func TestDescribe(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := []string{"usr/local/bin/one=" + self, "cni/two=" + self}
	for _, name := range []string{"a", "b"} {
		if err := run("registry.example:5000/netcraq-agent:1.0", digest, filepath.Join(dir, name), files); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := os.ReadFile(filepath.Join(dir, "a"))
	b, _ := os.ReadFile(filepath.Join(dir, "b"))
	if string(a) != string(b) {
		t.Errorf("twice, and not the same:\n%s\n%s", a, b)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(strings.NewReader(string(a)), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	image := bom.Metadata.Component
	if image.Name != "registry.example:5000/netcraq-agent" || image.Version != "1.0" || (*image.Hashes)[0].Value != digest[7:] ||
		bom.SpecVersion != cdx.SpecVersion1_6 || bom.SerialNumber != "urn:uuid:01234567-89ab-8def-8123-456789abcdef" {
		t.Errorf("the image is %+v, %v, %s", image, bom.SpecVersion, bom.SerialNumber)
	}
	found := map[string]cdx.Component{}
	for _, c := range *bom.Components {
		if found[c.BOMRef].Name != "" {
			t.Errorf("%s is listed twice", c.BOMRef)
		}
		found[c.BOMRef] = c
	}
	for _, ref := range []string{"file:/usr/local/bin/one", "file:/cni/two", "pkg:golang/github.com/netcraq/netcraq"} {
		if found[ref].Name == "" {
			t.Errorf("%s is not listed in\n%s", ref, a)
		}
	}
	std := slices.ContainsFunc(*bom.Components, func(c cdx.Component) bool { return c.Name == "std" && c.Version != "" })
	library := slices.ContainsFunc(*bom.Components, func(c cdx.Component) bool {
		return c.Name == "github.com/CycloneDX/cyclonedx-go" && strings.HasPrefix(c.PackageURL, "pkg:golang/github.com/CycloneDX/cyclonedx-go@v") &&
			strings.HasPrefix((*c.Properties)[0].Value, "h1:")
	})
	if !std || !library {
		t.Errorf("Go's release: %v, a module with its hash: %v, in\n%s", std, library, a)
	}
	for _, d := range *bom.Dependencies {
		if d.Ref == "image" && !slices.Equal(*d.Dependencies, []string{"file:/cni/two", "file:/usr/local/bin/one"}) {
			t.Errorf("the image has %v", *d.Dependencies)
		}
		for _, on := range *d.Dependencies {
			if found[on].Name == "" {
				t.Errorf("%s depends on %s, which is not listed", d.Ref, on)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	text := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		digest string
		files  []string
		says   string
	}{
		{digest, []string{"bin/script=" + text}, "bin/script: is it a Go program?"},
		{digest, []string{"bin/none=/no/such/file"}, "no such file"},
		{digest, []string{"bin/none"}, "PATH-IN-IMAGE=FILE"},
		{digest, nil, "want"},
		{"sha256:12", []string{"a=b"}, "sha256:12"},
	} {
		if err := run("x:1", c.digest, "", c.files); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want %q", c.files, err, c.says)
		}
	}
}
