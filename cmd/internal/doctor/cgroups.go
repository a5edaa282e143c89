package doctor

import (
	"bufio"
	"context"
	"os"
	"strings"
)

func cgroups(_ context.Context, l *look) {
	v2, v1, err := l.cgroupMounts()
	const versions = "control groups"
	switch {
	case err != nil:
		l.unseen(versions, "reading what is mounted", err)
	case v2 == "" && len(v1) == 0:
		l.problem(versions, "mount -t cgroup2 none /sys/fs/cgroup, as systemd does",
			"none are mounted: the kubelet does not start, and the node API does not know pods")
	case v2 == "":
		l.warn(versions, "start the machine with systemd.unified_cgroup_hierarchy=1; Kubernetes is giving version 1 up",
			"version 1 alone (%s): the node API knows pods by it", strings.Join(v1, ", "))
	case len(v1) > 0:
		l.note(versions, "both versions (version 2 at %s): all hierarchies of version 1 that name a pod have to name the same", v2)
	default:
		l.ok(versions, "version 2 at %s", v2)
	}
	if own := readFile(l.proc("self/cgroup")); v2 != "" && own != "" && !strings.Contains("\n"+own, "\n0::") {
		l.problem("own control group", "mount /proc of the machine's own kernel", "/proc/self/cgroup names no group of version 2, though that is mounted")
	}
}

// cgroupMounts returns the mount points of control groups: version 2, and the controllers of
// version 1.
func (l *look) cgroupMounts() (v2 string, v1 []string, err error) {
	f, err := os.Open(l.proc("self/mountinfo"))
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		before, after, ok := strings.Cut(s.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 1 {
			continue
		}
		switch kind[0] {
		case "cgroup2":
			if v2 == "" {
				v2 = fields[4]
			}
		case "cgroup":
			v1 = append(v1, fields[4][strings.LastIndexByte(fields[4], '/')+1:])
		}
	}
	return v2, v1, s.Err()
}
