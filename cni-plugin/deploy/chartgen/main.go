// Command chartgen writes the parts of the Helm chart that come from the manifests. These are
// kustomize's output for cni-plugin/deploy, with the chart's values in the places that operators
// may want to change.
//
//	go run . -write     write them into ../chart
//	go run .            report differences between them and the manifests
//
// So there is one set of manifests. TestSameObjects makes Helm render the chart, and compares the
// objects with those of kustomize.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	write := flag.Bool("write", false, "write the files into the chart")
	deploy := flag.String("deploy", "..", "the `FOLDER` of the manifests, cni-plugin/deploy")
	flag.Parse()
	if err := run(*deploy, *write); err != nil {
		fmt.Fprintln(os.Stderr, "chartgen:", err)
		os.Exit(1)
	}
}

func run(deploy string, write bool) error {
	files, err := generate(deploy)
	if err != nil {
		return err
	}
	chart := filepath.Join(deploy, "chart")
	if !write {
		return differ(chart, files)
	}
	if err := removeOld(chart, files); err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(chart, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
