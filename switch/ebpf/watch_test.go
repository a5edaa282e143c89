package ebpf

import "testing"

// TestFeatures asks for a veth's XDP features: natively it always runs programs, and it takes frames from them once its peer has a program.
func TestFeatures(t *testing.T) {
	sw, _ := inNamespace(t)
	f, err := xdpFeatures(sw.Attrs().Index)
	if err != nil {
		t.Fatal(err)
	}
	if f&xdpBasic == 0 || f&xdpXmit != 0 {
		t.Errorf("a veth without programs has the features %#x", f)
	}
}
