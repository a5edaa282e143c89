package authority

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	uidA = "0b1d7c3e-5a2f-4c8e-9d10-3f6a7b8c9d0e"
	uidB = "a1b2c3d4-e5f6-4789-8abc-def012345678"
	hash = "5f3d1c0a9b8e7d6c5b4a39281706f5e4"
	id   = "2c8d1b7e4f5a6c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f"
)

// under converts a UID to the form that the names of systemd's slices have.
func under(uid string) string { return strings.ReplaceAll(uid, "-", "_") }

// TestPodOfCgroup checks paths of control groups that kubelets and container runtimes create.
func TestPodOfCgroup(t *testing.T) {
	v1 := func(path string) string {
		var out strings.Builder
		for _, c := range []string{"12:memory", "11:cpu,cpuacct", "10:pids", "9:cpuset", "1:name=systemd"} {
			out.WriteString(c + ":" + path + "\n")
		}
		return out.String() + "0::/\n"
	}
	for _, c := range []struct{ name, prefix, file, want string }{
		{"v2 systemd containerd burstable", "", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under(uidA) + ".slice/cri-containerd-" + id + ".scope\n", uidA},
		{"v2 systemd containerd besteffort", "", "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + under(uidA) + ".slice/cri-containerd-" + id + ".scope\n", uidA},
		{"v2 systemd containerd guaranteed", "", "0::/kubepods.slice/kubepods-pod" + under(uidA) + ".slice/cri-containerd-" + id + ".scope\n", uidA},
		{"v2 systemd CRI-O", "", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under(uidA) + ".slice/crio-" + id + ".scope\n", uidA},
		{"v2 systemd CRI-O, a folder of the container's own", "", "0::/kubepods.slice/kubepods-pod" + under(uidA) + ".slice/crio-" + id + ".scope/container\n", uidA},
		{"v2 systemd docker", "", "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + under(uidA) + ".slice/docker-" + id + ".scope\n", uidA},
		{"v2 cgroupfs containerd", "", "0::/kubepods/burstable/pod" + uidA + "/" + id + "\n", uidA},
		{"v2 cgroupfs guaranteed", "", "0::/kubepods/pod" + uidA + "/" + id + "\n", uidA},
		{"v2 cgroupfs CRI-O", "", "0::/kubepods/besteffort/pod" + uidA + "/crio-" + id + "\n", uidA},
		{"v2 kind", "", "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + under(uidA) + ".slice/cri-containerd-" + id + ".scope\n", uidA},
		{"v2 kind, cgroupfs", "", "0::/kubelet/kubepods/burstable/pod" + uidA + "/" + id + "\n", uidA},
		{"v2 a node that is a container", "/docker/" + id, "0::/docker/" + id + "/kubepods/burstable/pod" + uidA + "/" + id + "\n", uidA},
		{"v2 a node that is a container of systemd's", "/system.slice/docker-" + id + ".scope", "0::/system.slice/docker-" + id + ".scope/kubepods.slice/kubepods-pod" + under(uidA) + ".slice/cri-containerd-" + id + ".scope\n", uidA},
		{"v2 namespace, another class", "", "0::/../../../kubepods-besteffort.slice/kubepods-besteffort-pod" + under(uidA) + ".slice/cri-containerd-" + id + ".scope\n", uidA},
		{"v2 namespace, the same class", "", "0::/../../kubepods-burstable-pod" + under(uidA) + ".slice/cri-containerd-" + id + ".scope\n", uidA},
		{"v2 namespace, cgroupfs, another class", "", "0::/../../../besteffort/pod" + uidA + "/" + id + "\n", uidA},
		{"v2 namespace, cgroupfs, the same class", "", "0::/../../pod" + uidA + "/" + id + "\n", uidA},
		{"v2 a static pod", "", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + hash + ".slice/cri-containerd-" + id + ".scope\n", hash},
		{"v2 a container that has gone", "", "0::/kubepods.slice/kubepods-pod" + under(uidA) + ".slice/cri-containerd-" + id + ".scope (deleted)\n", uidA},
		{"v1 cgroupfs containerd", "", v1("/kubepods/burstable/pod" + uidA + "/" + id), uidA},
		{"v1 systemd containerd", "", v1("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under(uidA) + ".slice/cri-containerd-" + id + ".scope"), uidA},
		{"v1 systemd CRI-O", "", v1("/kubepods.slice/kubepods-pod" + under(uidA) + ".slice/crio-" + id + ".scope"), uidA},
		{"v1 a controller that the pod is not in", "", v1("/kubepods/pod"+uidA+"/"+id) + "13:rdma:/\n", uidA},

		{"no pod: a service", "", "0::/system.slice/sshd.service\n", ""},
		{"no pod: a session", "", "0::/user.slice/user-1000.slice/session-3.scope\n", ""},
		{"no pod: the root", "", "0::/\n", ""},
		{"no pod: v1", "", v1("/user.slice"), ""},
		{"no pod: the kubelet", "", "0::/system.slice/kubelet.service\n", ""},
		{"no pod: a container of docker's", "", "0::/system.slice/docker-" + id + ".scope\n", ""},
		{"no pod: the agent's own", "", "0::/../../../../system.slice/containerd.service\n", ""},

		// The following paths could be made by an attacker that may make control groups below its
		// own.
		{"nested in a pod", "", "0::/kubepods.slice/kubepods-pod" + under(uidA) + ".slice/cri-containerd-" + id + ".scope/kubepods.slice/kubepods-pod" + under(uidB) + ".slice/cri-containerd-" + id + ".scope\n", uidA},
		{"nested in a pod, cgroupfs", "", "0::/kubepods/pod" + uidA + "/" + id + "/kubepods/burstable/pod" + uidB + "/" + id + "\n", uidA},
		{"nested in a pod, of the other driver", "", "0::/kubepods/pod" + uidA + "/" + id + "/kubepods.slice/kubepods-pod" + under(uidB) + ".slice\n", uidA},
		{"nested in a pod, seen from a namespace", "", "0::/../../pod" + uidA + "/" + id + "/kubepods/pod" + uidB + "/" + id + "\n", uidA},
		{"nested right in the pod's own", "", "0::/kubepods/pod" + uidA + "/pod" + uidB + "\n", uidA},
		{"delegated to a user", "", "0::/user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-pod" + under(uidB) + ".slice/cri-containerd-" + id + ".scope\n", ""},
		{"delegated to a user, as if it were the kubelet's", "", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/kubepods/burstable/pod" + uidB + "/" + id + "\n", ""},
		{"delegated to a user, seen from a namespace", "", "0::/../../../../user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-pod" + under(uidB) + ".slice/x\n", ""},
		{"in a container of docker's", "", "0::/docker/" + id + "/kubepods/burstable/pod" + uidB + "/" + id + "\n", ""},
		{"in a container that is not the node", "/docker/" + id, "0::/docker/" + strings.Repeat("f", 64) + "/kubepods/burstable/pod" + uidB + "/" + id + "\n", ""},
		{"outside of what the operator has named", "/node", "0::/kubepods/burstable/pod" + uidB + "/" + id + "\n", ""},
		{"slices that do not continue", "", "0::/kubepods.slice/kubepods-other.slice/kubepods-pod" + under(uidB) + ".slice/x\n", ""},
		{"a UID in capitals", "", "0::/kubepods/pod" + strings.ToUpper(uidA) + "/" + id + "\n", ""},
		{"a name that only begins like a pod's", "", "0::/kubepods/pod" + uidA + "x/" + id + "\n", ""},
		{"a runtime with the other driver than the kubelet", "", "0::/system.slice/containerd.service/kubepods-burstable-pod" + under(uidA) + ".slice:cri-containerd:" + id + "\n", ""},
	} {
		got, err := Cgroups{Prefix: c.prefix}.PodUID(c.file)
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestCgroupsThatContradict(t *testing.T) {
	file := "5:memory:/kubepods/pod" + uidA + "/" + id + "\n4:pids:/kubepods/pod" + uidB + "/" + id + "\n"
	if got, err := (Cgroups{}).PodUID(file); got != "" || !errors.Is(err, ErrForged) {
		t.Errorf("two pods at once: %q, %v", got, err)
	}
	for _, file := range []string{"0:/kubepods", "x", "0::kubepods/pod" + uidA, "\n"} {
		if got, err := (Cgroups{}).PodUID(file); got != "" || err == nil {
			t.Errorf("%q: %q, %v", file, got, err)
		}
	}
}

func TestPrefixOf(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"0::/kubepods/burstable/pod" + uidA + "/" + id + "\n", ""},
		{"0::/docker/" + id + "/kubelet/kubepods/pod" + uidA + "/" + id + "\n", "/docker/" + id},
		{"0::/system.slice/docker-x.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + under(uidA) + ".slice/x\n", "/system.slice/docker-x.scope"},
		{"0::/../../pod" + uidA + "\n", ""},
		{"0::/\n", ""},
		{"0::/user.slice/user-1.slice\n", ""},
	} {
		if got := PrefixOf(c.file); got != c.want {
			t.Errorf("%q: %q, want %q", c.file, got, c.want)
		}
	}
}

// FuzzPodUID searches for a path below a pod or a user that PodUID attributes to another pod.
func FuzzPodUID(f *testing.F) {
	f.Add("kubepods/burstable/pod" + uidB + "/x")
	f.Add("kubepods.slice/kubepods-pod" + under(uidB) + ".slice")
	f.Add("../../pod" + uidB)
	f.Fuzz(func(t *testing.T, below string) {
		if strings.ContainsAny(below, "\n\x00") || strings.HasPrefix(below, "/..") {
			return // the kernel does not allow such a name
		}
		for _, s := range strings.Split(below, "/") {
			if s == ".." {
				return
			}
		}
		for above, want := range map[string]string{
			"/kubepods/pod" + uidA + "/" + id:                                              uidA,
			"/../../kubepods-pod" + under(uidA) + ".slice/cri-containerd-" + id + ".scope": uidA,
			"/user.slice/user-1000.slice/user@1000.service":                                "",
			"/docker/" + id: "",
		} {
			if got, err := (Cgroups{}).PodUID("0::" + above + "/" + below + "\n"); err != nil || got != want {
				t.Errorf("%s/%s: %q, %v, want %q", above, below, got, err, want)
			}
		}
	})
}

// TestKernelWritesIt puts a process into control groups like those of a pod, and checks what the
// kernel writes to /proc. It does so for each version of control groups on this machine.
func TestKernelWritesIt(t *testing.T) {
	for name, dirs := range map[string][]string{
		"version-1": {"/sys/fs/cgroup/pids"},
		// version 2 alongside version 1, or version 2 alone
		"version-2": {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dir := range dirs {
				var fs unix.Statfs_t
				if unix.Statfs(dir, &fs) != nil || name == "version-2" && fs.Type != unix.CGROUP2_SUPER_MAGIC {
					continue
				}
				if f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0); err == nil {
					f.Close()
					kernelWrites(t, dir)
					return
				}
			}
			t.Skip("this machine has none, or this user may make none: what the kernel writes about them is not read")
		})
	}
}

// kernelWrites makes control groups like those of a pod below root. Inside them it makes control
// groups like those of another pod.
func kernelWrites(t *testing.T, root string) {
	t.Helper()
	own := "netcraq-authority-test"
	base := filepath.Join(root, own)
	dir := filepath.Join(base, "kubepods/burstable/pod"+uidA, id)
	nested := filepath.Join(dir, "kubepods/pod"+uidB, id)
	t.Cleanup(func() {
		for d := nested; d != root; d = filepath.Dir(d) {
			_ = os.Remove(d)
		}
	})
	for _, d := range []string{dir, nested} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Skipf("this user may make no control groups: %v", err)
		}
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(filepath.Join(d, "cgroup.procs"), []byte(itoa(cmd.Process.Pid)), 0)
		text, err2 := os.ReadFile("/proc/" + itoa(cmd.Process.Pid) + "/cgroup")
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		file := string(text)
		prefix := PrefixOf(file)
		if !strings.HasSuffix(prefix, "/"+own) {
			t.Errorf("what is before kubepods is %q in\n%s", prefix, file)
		}
		if got, err := (Cgroups{Prefix: prefix}).PodUID(file); err != nil || got != uidA {
			t.Errorf("%q, %v, want %q of\n%s", got, err, uidA, file)
		}
		if got, err := (Cgroups{}).PodUID(file); err != nil || got != "" {
			t.Errorf("without the prefix: %q, %v, want none of\n%s", got, err, file)
		}
	}
}

// TestKernelNamespace reads the control group of a process from within the control group namespace
// of another pod. An agent in a container does this with version 2. The path then lacks the common
// part.
func TestKernelNamespace(t *testing.T) {
	root := ""
	for _, dir := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC && unix.Access(dir, unix.W_OK) == nil {
			root = dir
			break
		}
	}
	if _, err := exec.LookPath("unshare"); root == "" || err != nil || os.Geteuid() != 0 {
		t.Skip("it takes root, control groups of version 2, and unshare")
	}
	base := filepath.Join(root, "netcraq-namespace-test/kubepods/burstable")
	looks, looked := filepath.Join(base, "pod"+uidB, id), filepath.Join(base, "pod"+uidA, id)
	t.Cleanup(func() {
		for _, d := range []string{looks, looked} {
			for ; d != root; d = filepath.Dir(d) {
				_ = os.Remove(d)
			}
		}
	})
	for _, d := range []string{looks, looked} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Skipf("this user may make no control groups: %v", err)
		}
	}
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
	}()
	err := os.WriteFile(filepath.Join(looked, "cgroup.procs"), []byte(itoa(sleeper.Process.Pid)), 0)
	if err != nil {
		t.Fatal(err)
	}
	script := "echo $$ > " + filepath.Join(looks, "cgroup.procs") + " && exec unshare --cgroup cat /proc/" +
		itoa(sleeper.Process.Pid) + "/cgroup"
	text, err := exec.Command("sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Skipf("no namespaces of control groups here: %v: %s", err, text)
	}
	line := ""
	for l := range strings.Lines(string(text)) {
		if strings.HasPrefix(l, "0::") {
			line = l
		}
	}
	if want := "0::/../../pod" + uidA + "/" + id + "\n"; line != want {
		t.Fatalf("the kernel writes %q, want %q, of\n%s", line, want, text)
	}
	if got, err := (Cgroups{}).PodUID(line); err != nil || got != uidA {
		t.Errorf("%q, %v, want %q", got, err, uidA)
	}
}
