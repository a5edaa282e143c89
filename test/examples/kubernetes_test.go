// Package examples checks the examples that no server on this machine can run.
package examples

import (
	"os"
	"path"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// TestKubernetes checks that Kubernetes' strict decoder accepts the Deployment, and that its pods
// find the node API.
func TestKubernetes(t *testing.T) {
	const folder = "../../examples/kubernetes/"
	text, err := os.ReadFile(folder + "deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	object, kind, err := strict.Decode(text, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, ok := object.(*apps.Deployment)
	if !ok {
		t.Fatalf("deployment.yaml has a %s", kind)
	}
	selector, err := meta.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil || selector.Empty() || !selector.Matches(labels.Set(d.Spec.Template.Labels)) {
		t.Errorf("the selector %v does not select the pods' labels %v: %v", selector, d.Spec.Template.Labels, err)
	}
	pod := d.Spec.Template.Spec
	if len(pod.Containers) != 1 {
		t.Fatalf("%d containers", len(pod.Containers))
	}
	container := pod.Containers[0]
	volumes := map[string]core.Volume{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
	}
	mounted := map[string]string{} // folders of the node, by the folder in the pod
	for _, m := range container.VolumeMounts {
		if v, there := volumes[m.Name]; !there || v.HostPath == nil {
			t.Errorf("the mount %s is of no folder of the node", m.Name)
		} else {
			mounted[m.MountPath] = v.HostPath.Path
		}
	}
	agent, err := os.ReadFile("../../cni-plugin/deploy/agent/base/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	inPod := path.Dir(nodeapi.DefaultSocket)
	if on := mounted[inPod]; on == "" || !strings.Contains(string(agent), "mountPath: "+on+"}") {
		t.Errorf("%v is mounted: %s has to be the folder in which the agent serves the node API", mounted, inPod)
	}
	readme, err := os.ReadFile(folder + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	build, err := os.ReadFile(folder + "Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(build), "-t "+container.Image+" ") {
		t.Errorf("the Containerfile does not build the image %s", container.Image)
	}
	if label := "kubectl logs -l " + selector.String(); !strings.Contains(string(readme), label) {
		t.Errorf("the README does not say %q", label)
	}
}
