// Command sbom writes an SBOM (CycloneDX 1.6) of one of the project's container images. It lists
// the image's programs with their hashes. For each program it also lists the Go modules and the Go
// release from which the program was built. The linker has written these into the program. The same
// image gives the same bytes.
//
//	sbom -image TAG -digest sha256:... -o FILE  PATH-IN-IMAGE=FILE...
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	image := flag.String("image", "", "the image's `TAG`")
	digest := flag.String("digest", "", "its `DIGEST`, sha256:...")
	out := flag.String("o", "", "the `FILE` to write; without it standard output")
	flag.Parse()
	if err := run(*image, *digest, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(image, digest, out string, files []string) error {
	bom, err := describe(image, digest, files)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	e := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true)
	if err := e.EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return err
	}
	if out == "" {
		_, err = os.Stdout.Write(text.Bytes())
		return err
	}
	return os.WriteFile(out, text.Bytes(), 0o644)
}

// describe makes the SBOM of the programs in an image.
func describe(image, digest string, files []string) (*cdx.BOM, error) {
	sum, ok := strings.CutPrefix(digest, "sha256:")
	if b, err := hex.DecodeString(sum); !ok || err != nil || len(b) != sha256.Size || image == "" || len(files) == 0 {
		return nil, fmt.Errorf("want -image TAG, -digest sha256:... and PATH-IN-IMAGE=FILE...; -digest is %q", digest)
	}
	name, version, _ := cutLast(image, ":")
	bom := cdx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + uuid(sum)
	root := cdx.Component{BOMRef: "image", Type: cdx.ComponentTypeContainer, Name: name, Version: version,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}}}
	bom.Metadata = &cdx.Metadata{Component: &root}
	var programs []cdx.Component
	modules := map[string]cdx.Component{}
	depends := map[string][]string{}
	for _, f := range files {
		inside, path, ok := strings.Cut(f, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not PATH-IN-IMAGE=FILE", f)
		}
		program, of, err := look(inside, path)
		if err != nil {
			return nil, err
		}
		programs = append(programs, program)
		depends[root.BOMRef] = append(depends[root.BOMRef], program.BOMRef)
		for _, m := range of {
			modules[m.BOMRef] = m
			depends[program.BOMRef] = append(depends[program.BOMRef], m.BOMRef)
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(modules)) {
		programs = append(programs, modules[ref])
	}
	bom.Components = &programs
	var dependencies []cdx.Dependency
	for _, ref := range slices.Sorted(maps.Keys(depends)) {
		on := slices.Sorted(slices.Values(depends[ref]))
		dependencies = append(dependencies, cdx.Dependency{Ref: ref, Dependencies: &on})
	}
	bom.Dependencies = &dependencies
	return bom, nil
}

// look describes a program and the modules from which it was built.
func look(inside, path string) (program cdx.Component, modules []cdx.Component, err error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return program, nil, fmt.Errorf("%s: is it a Go program? %w", inside, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return program, nil, err
	}
	sum := sha256.Sum256(content)
	inside = "/" + strings.TrimPrefix(inside, "/")
	program = cdx.Component{BOMRef: "file:" + inside, Type: cdx.ComponentTypeApplication, Name: inside,
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Properties: &[]cdx.Property{{Name: "go:package", Value: info.Path}}}
	for _, s := range info.Settings {
		if slices.Contains([]string{"-tags", "CGO_ENABLED", "GOARCH", "-ldflags"}, s.Key) {
			p := cdx.Property{Name: "go:" + s.Key, Value: s.Value}
			*program.Properties = append(*program.Properties, p)
		}
	}
	std := debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}
	modules = append(modules, module(&std))
	if info.Main.Path != "" {
		modules = append(modules, module(&info.Main))
	}
	for _, m := range info.Deps {
		if m.Replace != nil && m.Replace.Version != "" { // if a folder replaces the module, the module keeps its name
			m = m.Replace
		}
		modules = append(modules, module(m))
	}
	return program, modules, nil
}

// module describes a Go module.
func module(m *debug.Module) cdx.Component {
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version}
	c.PackageURL = "pkg:golang/" + m.Path
	if m.Version != "" && m.Version != "(devel)" {
		c.PackageURL += "@" + strings.ReplaceAll(m.Version, "+", "%2B")
	}
	c.BOMRef = c.PackageURL
	// This is the hash that go.sum has after "h1:". It is a hash of the module's files, and not of
	// an archive.
	if b, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(b) > 0 {
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
	}
	return c
}

// uuid makes a UUID (version 8) from a hash, so that equal images have equal serial numbers.
func uuid(sum string) string {
	return sum[:8] + "-" + sum[8:12] + "-8" + sum[13:16] + "-8" + sum[17:20] + "-" + sum[20:32]
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
