package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"sigs.k8s.io/yaml"
)

const (
	deploy = ".."
	chart  = "../chart"
)

type object = map[string]any

// render makes Helm render the chart with values, for a release in a namespace, like helm template
// --include-crds.
func render(t *testing.T, in string, values object) (objects map[string]object, notes string, err error) {
	t.Helper()
	c, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(&action.Configuration{Capabilities: chartutil.DefaultCapabilities.Copy(),
		Log: func(string, ...any) {}})
	install.DryRun, install.ClientOnly, install.IncludeCRDs = true, true, true
	install.ReleaseName, install.Namespace = "netcraq", in
	install.KubeVersion = &chartutil.KubeVersion{Version: "v1.34.0", Major: "1", Minor: "34"}
	release, err := install.Run(c, values)
	if err != nil {
		return nil, "", err
	}
	objects = parse(t, release.Manifest)
	for _, h := range release.Hooks {
		t.Errorf("a hook, which kustomize has not: %s", h.Name)
	}
	return objects, release.Info.Notes, nil
}

// parse returns the objects of a YAML stream, by kind, namespace and name.
func parse(t *testing.T, text string) map[string]object {
	t.Helper()
	out := map[string]object{}
	for _, doc := range strings.Split("\n"+text, "\n---") {
		var o object
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if len(o) == 0 {
			continue
		}
		m, _ := o["metadata"].(object)
		name := fmt.Sprintf("%v %v/%v", o["kind"], m["namespace"], m["name"])
		if out[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		out[name] = o
	}
	return out
}

// kustomized returns the objects that kustomize builds. It omits the Namespace, because a release's
// namespace exists already.
func kustomized(t *testing.T) map[string]object {
	t.Helper()
	built, err := build(deploy)
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	out := parse(t, string(text))
	if out["Namespace <nil>/"+namespace] == nil {
		t.Fatalf("there is no namespace among %v", slices.Sorted(maps.Keys(out)))
	}
	delete(out, "Namespace <nil>/"+namespace)
	return out
}

// TestGenerated checks that the committed chart comes from the manifests.
func TestGenerated(t *testing.T) {
	if err := run(deploy, false); err != nil {
		t.Error(err)
	}
}

// TestSameObjects checks that helm install and kubectl apply -k create the same objects.
func TestSameObjects(t *testing.T) {
	want := kustomized(t)
	got, notes, err := render(t, namespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what kustomize builds (-) and what Helm renders (+):\n%s", diff)
	}
	if len(got) < 15 {
		t.Errorf("that is only %d objects", len(got))
	}
	if !strings.Contains(notes, "kubectl netcraq get /leader") {
		t.Errorf("the notes are\n%s", notes)
	}
}

// TestElsewhere renders the chart for another namespace. The default namespace must not appear
// anywhere, not even in policies' expressions.
func TestElsewhere(t *testing.T) {
	got, _, err := render(t, "other", nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), namespace) {
		t.Errorf("%s is still in\n%s", namespace, text)
	}
	if !strings.Contains(string(text), "system:serviceaccount:other:netcraq-agent-control-plane") {
		t.Error("the policy does not know the accounts of the other namespace")
	}
}

// agents returns the pod specifications of the two DaemonSets. The first one is that of the control
// plane.
func agents(t *testing.T, objects map[string]object) (out []object) {
	t.Helper()
	for _, name := range []string{"netcraq-agent-control-plane", "netcraq-agent"} {
		pod, ok := dig(objects["DaemonSet "+namespace+"/"+name], "spec", "template", "spec")
		if !ok {
			t.Fatalf("no %s among %v", name, slices.Sorted(maps.Keys(objects)))
		}
		out = append(out, pod)
	}
	return out
}

func args(pod object) (out []string) {
	for _, a := range pod["containers"].([]any)[0].(object)["args"].([]any) {
		out = append(out, a.(string))
	}
	return out
}

// TestValues sets each value, and checks its effect on control-plane nodes and on others.
func TestValues(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	plain, _, err := render(t, namespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	was := agents(t, plain)
	for _, c := range []struct {
		values  string
		leads   string   // an argument that agents on control-plane nodes get
		all     string   // an argument that all agents get
		without []string // arguments that agents on control-plane nodes must not have
		look    func(pod object) any
		want    any
	}{
		{values: `etcd: {endpoints: ["192.0.2.1:2379", "192.0.2.2:2379"]}`, leads: "--etcd=192.0.2.1:2379,192.0.2.2:2379", without: []string{"--etcd=localhost:2379"}},
		{values: `gateway: https://192.0.2.9:1`, leads: "--gateway=https://192.0.2.9:1"},
		{values: `gateway: ""`, without: []string{"--gateway=https://127.0.0.1:23790"}},
		{values: `prometheus: http://prometheus.monitoring:9090`, leads: "--prometheus=http://prometheus.monitoring:9090"},
		{values: `prometheus: ""`, without: []string{"--prometheus=http://127.0.0.1:9090"}},
		{values: `cni: {chained: true}`, all: "--chained"},
		{values: `cni: {version: 1.1.0}`, all: "--cni-version=1.1.0"},
		{values: `routes: vxlan`, all: "--routes=vxlan"},
		{values: `services: 10.9.0.0/24`, all: "--services=10.9.0.0/24"},
		{values: `switches: 10.9.1.0/24`, all: "--switches=10.9.1.0/24"},
		{values: `ports: {p4runtime: 1559}`, all: "--p4runtime-port=1559"},
		{values: `ports: {agent: 1560}`, all: "--agent-port=1560"},
		{values: `ports: {health: 1561}`, all: "--health-port=1561", look: func(pod object) any {
			get, _ := dig(pod["containers"].([]any)[0].(object), "livenessProbe", "httpGet")
			return get["port"]
		}, want: 1561.0},
		{values: `podRate: 0`, leads: "--pod-rate=0"},
		{values: `nodeAPI: {streamsMiB: 64}`, all: "--node-api-streams=64"},
		{values: `adminUsers: [ops, 1000]`, leads: "--admin-users=ops,1000"},
		{values: `extraArgs: ["--engine=interp"]`, all: "--engine=interp"},
		{values: `controlPlane: {extraArgs: ["--heat-window=2m"]}`, leads: "--heat-window=2m"},
		{values: "image: {digest: \"" + digest + "\"}", look: imageOf, want: "localhost/netcraq/netcraq-agent@" + digest},
		{values: `image: {repository: registry.example/a, tag: "1.2"}`, look: imageOf, want: "registry.example/a:1.2"},
		{values: `image: {pullPolicy: Always}`, look: func(pod object) any { return pod["containers"].([]any)[0].(object)["imagePullPolicy"] }, want: "Always"},
		{values: `imagePullSecrets: [{name: mine}]`, look: func(pod object) any { return pod["imagePullSecrets"] }, want: []any{object{"name": "mine"}}},
		{values: `priorityClassName: other`, look: func(pod object) any { return pod["priorityClassName"] }, want: "other"},
		{values: `resources: {limits: {memory: 1Gi}}`, look: func(pod object) any {
			limits, _ := dig(pod["containers"].([]any)[0].(object), "resources", "limits")
			return limits["memory"]
		}, want: "1Gi"},
		{values: `cni: {confDir: /var/lib/k/net.d}`, look: hostPath("cni-conf"), want: "/var/lib/k/net.d"},
		{values: `cni: {binDir: /var/lib/k/bin}`, look: hostPath("cni-bin"), want: "/var/lib/k/bin"},
		{values: `etcd: {ca: /etc/etcd/ca.pem}`, look: hostPath("etcd-ca"), want: "/etc/etcd/ca.pem"},
		{values: `etcd: {cert: /etc/etcd/c.pem}`, look: hostPath("client-crt"), want: "/etc/etcd/c.pem"},
		{values: `etcd: {key: /etc/etcd/k.pem}`, look: hostPath("client-key"), want: "/etc/etcd/k.pem"},
		{values: `controlPlane: {nodeSelector: {node-role.kubernetes.io/control-plane: "true"}}`, look: func(pod object) any {
			if pod["nodeSelector"] == nil {
				return nil
			}
			return pod["nodeSelector"].(object)["node-role.kubernetes.io/control-plane"]
		}, want: "true"},
	} {
		t.Run(c.values, func(t *testing.T) {
			var values object
			if err := yaml.Unmarshal([]byte(c.values), &values); err != nil {
				t.Fatal(err)
			}
			objects, _, err := render(t, namespace, values)
			if err != nil {
				t.Fatal(err)
			}
			pods := agents(t, objects)
			has := func(pod object, arg string) bool { return slices.Contains(args(pod), arg) }
			if c.leads != "" && (!has(pods[0], c.leads) || has(pods[1], c.leads)) {
				t.Errorf("%s: control plane %v, others %v", c.leads, args(pods[0]), args(pods[1]))
			}
			if c.all != "" && (!has(pods[0], c.all) || !has(pods[1], c.all)) {
				t.Errorf("%s: control plane %v, others %v", c.all, args(pods[0]), args(pods[1]))
			}
			for _, a := range c.without {
				if has(pods[0], a) || !has(was[0], a) {
					t.Errorf("%s: %v, without the value %v", a, args(pods[0]), args(was[0]))
				}
			}
			if c.look == nil {
				return
			}
			if diff := cmp.Diff(c.want, c.look(pods[0])); diff != "" {
				t.Error(diff)
			}
			if cmp.Equal(c.want, c.look(was[0])) {
				t.Error("it is like that without the value, too")
			}
		})
	}
}

// TestPolicies sets the values of the component that enforces NetworkPolicy.
func TestPolicies(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	of := func(values string) object {
		t.Helper()
		var v object
		if err := yaml.Unmarshal([]byte(values), &v); err != nil {
			t.Fatal(err)
		}
		objects, _, err := render(t, namespace, v)
		if err != nil {
			t.Fatalf("%s: %v", values, err)
		}
		pod, ok := dig(objects["DaemonSet "+namespace+"/"+policies], "spec", "template", "spec")
		if ok {
			return pod["containers"].([]any)[0].(object)
		}
		for name := range objects {
			if strings.HasSuffix(name, policies) {
				t.Errorf("%s: there is no DaemonSet, and %s", values, name)
			}
		}
		return nil
	}
	for _, values := range []string{`policies: {enabled: false}`, `cni: {chained: true}`} {
		if of(values) != nil {
			t.Errorf("%s: policies are enforced", values)
		}
	}
	if got := of(`policies: {failOpen: true}`)["args"]; !cmp.Equal(got, any([]any{"--interfaces=ncq", "--fail-open"})) {
		t.Errorf("the arguments are %v", got)
	}
	if got := of(`policies: {image: {repository: registry.example/p, digest: "` + digest + `"}}`)["image"]; got != "registry.example/p@"+digest {
		t.Errorf("the image is %v", got)
	}
	if got := of(`policies: {resources: {limits: {memory: 1Gi}}}`)["resources"].(object)["limits"]; !cmp.Equal(got, any(object{"memory": "1Gi"})) {
		t.Errorf("the limits are %v", got)
	}
}

func imageOf(pod object) any { return pod["containers"].([]any)[0].(object)["image"] }

func hostPath(volume string) func(object) any {
	return func(pod object) any {
		for _, v := range pod["volumes"].([]any) {
			if v.(object)["name"] == volume {
				host, _ := dig(v.(object), "hostPath")
				return host["path"]
			}
		}
		return nil
	}
}

// TestChain creates the chain of chain.yaml together with the release. The chain must stay when the
// release is deleted.
func TestChain(t *testing.T) {
	objects, _, err := render(t, namespace, object{"chain": object{"create": true}})
	if err != nil {
		t.Fatal(err)
	}
	got := objects["NetcraqChain <nil>/main"]
	b, err := os.ReadFile(filepath.Join(deploy, "chain.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want object
	if err := yaml.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want["spec"], got["spec"]); diff != "" {
		t.Errorf("chain.yaml (-) and the chart's (+):\n%s", diff)
	}
	if notes, _ := dig(got, "metadata", "annotations"); notes["helm.sh/resource-policy"] != "keep" {
		t.Errorf("it goes with the release, after the agents, which nobody could take its keys out for: %v", got["metadata"])
	}
}

// TestRefused sets invalid values. The error must name each of them.
func TestRefused(t *testing.T) {
	for values, says := range map[string]string{
		`imagge: {tag: x}`:                             "imagge",
		`image: {digest: "sha256:12"}`:                 "digest",
		`etcd: {endpoints: []}`:                        "endpoints",
		`ports: {health: 70000}`:                       "health",
		`cni: {version: "2"}`:                          "version",
		`routes: over`:                                 "routes",
		`policies: {failopen: true}`:                   "failopen",
		`prometheus: 9090`:                             "prometheus",
		`extraArgs: ["engine=interp"]`:                 "extraArgs",
		`etcd: {key: pki/client.key}`:                  "key",
		`chain: {name: "Main!"}`:                       "name",
		`controlPlane: {nodeSelector: {}, more: true}`: "more",
		`chain: {spec: {lenght: 3}}`:                   "lenght",
		`chain: {spec: {length: 1}}`:                   "length",
		`chain: {spec: {profile: 512}}`:                "profile",
		`chain: {spec: {placement: {pin: [/a]}}}`:      "pin",
		`resources: {request: {cpu: 1}}`:               "request",
		`policies: {resources: {limit: {cpu: 1}}}`:     "limit",
		`imagePullSecrets: [{nmae: x, name: y}]`:       "nmae",
	} {
		var v object
		if err := yaml.Unmarshal([]byte(values), &v); err != nil {
			t.Fatal(err)
		}
		if _, _, err := render(t, namespace, v); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// TestLint runs helm lint.
func TestLint(t *testing.T) {
	result := action.NewLint().Run([]string{chart}, object{})
	for _, m := range result.Messages {
		if !strings.Contains(m.Err.Error(), "icon is recommended") {
			t.Error(m)
		}
	}
}

// TestMissingPlaces removes the place of a value from the manifests. This must be an error, because
// otherwise the value would have no effect.
func TestMissingPlaces(t *testing.T) {
	for says, change := range map[string]func(pod, container object){
		"no arguments":           func(_, c object) { delete(c, "args") },
		"no resources":           func(_, c object) { delete(c, "resources") },
		"does not ask the port":  func(_, c object) { delete(c, "livenessProbe") },
		"is no path of the host": func(p, _ object) { p["volumes"] = []any{object{"name": "cni-bin"}} },
		"contains {{":            func(_, c object) { c["workingDir"] = "{{ x }}" },
	} {
		set := kustomized(t)["DaemonSet "+namespace+"/netcraq-agent"]
		pod, _ := dig(set, "spec", "template", "spec")
		change(pod, pod["containers"].([]any)[0].(object))
		if _, err := template(set); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// TestStale changes a manifest. It expects an error that names the outdated file.
func TestStale(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(deploy)); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, false); err != nil {
		t.Fatalf("a copy: %v", err)
	}
	file := filepath.Join(dir, "agent/base/daemonset.yaml")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(b), "hostPID: true", "hostPID: false", 1)
	if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "chart/templates/left.yaml")
	if err := os.WriteFile(left, []byte(header), 0o644); err != nil {
		t.Fatal(err)
	}
	err = run(dir, false)
	for _, says := range []string{"agents.yaml", sums, "left.yaml comes from no manifest", "make chart"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("it does not speak of %s: %v", says, err)
		}
	}
	if err := run(dir, true); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, false); err != nil {
		t.Errorf("after it was written: %v", err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what comes from no manifest is still there")
	}
}

// TestNodePorts checks that the admission policies protect the nodes' ports that the values set.
func TestNodePorts(t *testing.T) {
	got, _, err := render(t, namespace, map[string]any{"ports": map[string]any{"p4runtime": 1559, "agent": 1560, "health": 1561}})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for name, o := range got {
		if o["kind"] != "ValidatingAdmissionPolicy" || !strings.HasSuffix(name, "-ports") {
			continue
		}
		found++
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(b); strings.Contains(text, "9559") || !strings.Contains(text, "1559, 1560, 1561]") ||
			!strings.Contains(text, "TCP 1559, 1560 and 1561") {
			t.Errorf("%s: %s", name, text)
		}
	}
	if found != 2 {
		t.Errorf("there are %d of these policies, not 2", found)
	}
}
