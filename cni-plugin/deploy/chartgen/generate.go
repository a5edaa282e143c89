package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// namespace is the namespace in the manifests. The chart replaces it by the release's namespace.
const namespace = "netcraq-system"

// header is the first line of each generated file.
const header = "{{- /* Generated from cni-plugin/deploy by `make chart`: change the manifests there. */ -}}\n"

// sums is the file with the hashes of the chart's sources. With it, users without Helm can check
// whether the chart is outdated.
const sums = "sources.sha256"

// fileOf maps kinds of objects to the template files for them. Objects of other kinds go into
// other.yaml.
var fileOf = map[string]string{
	"DaemonSet": "agents.yaml", "Deployment": "deployments.yaml",
	"ServiceAccount": "access.yaml", "ClusterRole": "access.yaml", "Role": "access.yaml",
	"ClusterRoleBinding": "access.yaml", "RoleBinding": "access.yaml",
	"ValidatingAdmissionPolicy": "admission.yaml", "ValidatingAdmissionPolicyBinding": "admission.yaml",
}

// policies is the optional component that enforces NetworkPolicy. Its objects are in a separate
// file, which Helm renders if withPolicies is true.
const (
	policies     = "netcraq-policies"
	policiesFile = "templates/policies.yaml"
	withPolicies = "and .Values.policies.enabled (not .Values.cni.chained)"
)

// build returns the output of kustomize for a folder.
func build(folder string) (resmap.ResMap, error) {
	options := krusty.MakeDefaultOptions()
	return krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), folder)
}

// generate returns the content of the generated files, by their names in the chart.
func generate(deploy string) (map[string]string, error) {
	built, err := build(deploy)
	if err != nil {
		return nil, fmt.Errorf("building the manifests: %w", err)
	}
	files := map[string]string{}
	for _, r := range built.Resources() {
		object, err := r.Map()
		if err != nil {
			return nil, err
		}
		switch kind := r.GetKind(); kind {
		case "Namespace": // the release's namespace exists already
		case "CustomResourceDefinition":
			text, err := yaml.Marshal(object)
			if err != nil {
				return nil, err
			}
			if r.GetName() == "netcraqchains.netcraq.io" {
				if files["values.schema.json"], err = valuesSchema(object); err != nil {
					return nil, err
				}
			}
			files["crds/"+r.GetName()+".yaml"] = string(text)
		default:
			text, err := template(object)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", kind, r.GetName(), err)
			}
			name := "templates/other.yaml"
			if f, ok := fileOf[kind]; ok {
				name = "templates/" + f
			}
			if r.GetName() == policies {
				name, text = policiesFile, "{{- if "+withPolicies+" }}\n---\n"+text+"{{- end }}\n"
			}
			if files[name] == "" {
				files[name] = header
			}
			if name != policiesFile {
				text = "---\n" + text
			}
			files[name] += text
		}
	}
	files[sums], err = sourceSums(deploy)
	return files, err
}

// sourceSums returns the SHA-256 hashes of the manifests, in the form of sha256sum.
func sourceSums(deploy string) (string, error) {
	var lines []string
	err := filepath.WalkDir(deploy, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(deploy, path)
		if d.IsDir() {
			if name == "chart" || name == "chartgen" {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".yaml" {
			return nil
		}
		b, err := os.ReadFile(path)
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(b), filepath.ToSlash(name)))
		return err
	})
	slices.Sort(lines)
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	return strings.Join(lines, ""), err
}

// template returns an object as YAML, with Helm directives in the places of values.
func template(object map[string]any) (string, error) {
	if object["kind"] == "DaemonSet" {
		if err := errors.Join(agent(object), enforcer(object)); err != nil {
			return "", err
		}
	}
	b, err := yaml.Marshal(object)
	if err != nil {
		return "", err
	}
	text := string(b)
	if strings.Contains(text, "{{") {
		return "", errors.New("the manifest contains {{, which Helm would take for its own")
	}
	text = strings.ReplaceAll(text, namespace, "{{ .Release.Namespace }}")
	text = fill(text)
	if object["kind"] == "ValidatingAdmissionPolicy" {
		text = nodePorts.Replace(text)
	}
	return text, nil
}

// nodePorts replaces the node ports in the manifests by the chart's values.
var nodePorts = strings.NewReplacer("9559", "{{ int .Values.ports.p4runtime }}",
	"9560", "{{ int .Values.ports.agent }}", "9561", "{{ int .Values.ports.health }}")

var (
	blockLine = regexp.MustCompile(`(?m)^( *)(?:- )?['"]?⟦([a-zA-Z]+)⟧['"]?(?:: .*)?\n`)
	inline    = regexp.MustCompile(`['"]?⟦=([^⟧]*)⟧['"]?`)
)

// fill puts directives into the marked places. It finds whole lines by the name of a block, and
// values by their content.
func fill(text string) string {
	text = blockLine.ReplaceAllStringFunc(text, func(line string) string {
		m := blockLine.FindStringSubmatch(line)
		var out strings.Builder
		for l := range strings.Lines(blocks[m[2]]) {
			out.WriteString(m[1] + l)
		}
		return out.String()
	})
	return inline.ReplaceAllString(text, "{{ $1 }}")
}

// differ reports which of the chart's files are outdated, missing or superfluous.
func differ(chart string, files map[string]string) error {
	var errs []error
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(chart, name)); err != nil || string(got) != want {
			errs = append(errs, fmt.Errorf("%s is not what the manifests say: make chart", filepath.Join(chart, name)))
		}
	}
	old, err := oldFiles(chart, files)
	for _, name := range old {
		errs = append(errs, fmt.Errorf("%s comes from no manifest any more: make chart", name))
	}
	return errors.Join(append(errs, err)...)
}

// oldFiles returns generated files that the generator no longer makes.
func oldFiles(chart string, files map[string]string) (old []string, err error) {
	for _, folder := range []string{"templates", "crds"} {
		found, err := filepath.Glob(filepath.Join(chart, folder, "*.yaml"))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			name, _ := filepath.Rel(chart, path)
			if files[name] == "" && (folder == "crds" || strings.HasPrefix(string(b), header)) {
				old = append(old, path)
			}
		}
	}
	return old, nil
}

func removeOld(chart string, files map[string]string) error {
	old, err := oldFiles(chart, files)
	for _, path := range old {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
