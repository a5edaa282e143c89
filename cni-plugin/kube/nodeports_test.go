package kube_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/internal/testutil/kubetest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// TestNodePorts checks that a Service or a pod that requests one of NetCRAQ's node ports is
// refused, and that the error lists these ports. The policy must not affect anything else.
func TestNodePorts(t *testing.T) {
	s := kubetest.Start(t, kubetest.Options{Args: []string{"--service-node-port-range", "9000-32767"}})
	ctx := t.Context()
	admin := clientOf(t, s, s.Config.BearerToken)
	const (
		udp      = corev1.ProtocolUDP
		cluster  = corev1.ServiceTypeClusterIP
		node     = corev1.ServiceTypeNodePort
		balancer = corev1.ServiceTypeLoadBalancer
	)
	service := func(kind corev1.ServiceType, external bool, ports ...corev1.ServicePort) *corev1.Service {
		o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-", Namespace: "default"},
			Spec: corev1.ServiceSpec{Type: kind, Ports: ports}}
		if external {
			o.Spec.ExternalIPs = []string{"192.168.7.3"}
		}
		return o
	}
	port := func(protocol corev1.Protocol, number, node int32) corev1.ServicePort {
		return corev1.ServicePort{Name: "p" + strings.ToLower(string(protocol)), Protocol: protocol, Port: number,
			NodePort: node}
	}
	pod := func(host bool, ports ...corev1.ContainerPort) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Namespace: "default"},
			Spec: corev1.PodSpec{HostNetwork: host,
				Containers: []corev1.Container{{Name: "c", Image: "none"}, {Name: "d", Image: "none", Ports: ports}}}}
	}
	inside := func(protocol corev1.Protocol, host int32) corev1.ContainerPort {
		return corev1.ContainerPort{Protocol: protocol, ContainerPort: host, HostPort: host}
	}
	beforehand := pod(false)
	beforehand.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "none",
		Ports: []corev1.ContainerPort{inside(udp, 20037)}}}
	old := service(cluster, true, port(udp, 20037, 0))
	must(t, admin.Create(ctx, old))
	s.Kubectl(t, kubetest.Options{}, "apply", "-f", "../deploy/node-ports.yaml")
	refused := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'netcraq-")
	}
	for _, o := range []client.Object{service(cluster, true, port(udp, 20037, 0)),
		pod(false, inside(udp, 20037))} {
		poll.Until(t, 30*time.Second, "the policies are in force", func() bool {
			return refused(admin.Create(ctx, o.DeepCopyObject().(client.Object), client.DryRunAll))
		})
	}
	for _, c := range []struct {
		what   string
		object client.Object
		want   string // part of the expected error; "" means no error
	}{
		{"externalIPs", service(cluster, true, port("", 80, 0), port(udp, 20035, 0)),
			"have the port UDP 20035 for NetCRAQ: a Service with externalIPs"},
		{"a load balancer", service(balancer, false, port(udp, 20037, 0)), "UDP 20037"},
		{"a nodePort", service(node, false, port(udp, 80, 20036)), "the port UDP 20036"},
		{"P4Runtime", service(cluster, true, port("", 9559, 0)), "the port TCP 9559"},
		{"an agent", service(node, false, port("", 443, 9560)), "the port TCP 9560"},
		{"a hostPort", pod(false, inside(udp, 20037)), "have the port UDP 20037 for NetCRAQ: a hostPort"},
		{"a hostPort of TCP", pod(false, inside("", 9561)), "the port TCP 9561"},
		{"an init container's hostPort", beforehand, "the port UDP 20037"},

		{"inside of the cluster", service(cluster, false, port(udp, 20037, 0), port("", 9559, 0)), ""},
		{"nodePorts of others", service(node, false, port(udp, 20037, 30000), port("", 9559, 30001)), ""},
		{"other protocols", service(balancer, true, port("", 20037, 0), port(udp, 9559, 0),
			port(corev1.ProtocolSCTP, 20035, 0)), ""},
		{"other ports", service(balancer, true, port(udp, 20034, 0), port("", 9562, 0)), ""},
		{"a Service without ports", &corev1.Service{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-", Namespace: "default"},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "a.example"}}, ""},
		{"a hostPort of others", pod(false, inside(udp, 20038), inside("", 20037)), ""},
		{"a pod without ports", pod(false), ""},
		{"a containerPort", pod(false, corev1.ContainerPort{Protocol: udp, ContainerPort: 20037}), ""},
		{"the host's network", pod(true, inside("", 9560)), ""},
	} {
		err := admin.Create(ctx, c.object, client.DryRunAll)
		if (err == nil) != (c.want == "") || err != nil && (!refused(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	// A Service that is older than the policy can still be labelled, and its port can be removed.
	old.Labels = map[string]string{"a": "b"}
	must(t, admin.Update(ctx, old))
	old.Spec.Ports[0].TargetPort.IntVal = 81
	if err := admin.Update(ctx, old); !refused(err) {
		t.Errorf("a Service of before takes the port for something else: %v", err)
	}
	old.Spec.ExternalIPs = nil
	must(t, admin.Update(ctx, old))
}
