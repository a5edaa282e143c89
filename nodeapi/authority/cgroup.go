package authority

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The kubelet makes a control group for each pod, and the container runtime creates one inside it
// for each container:
//
//	cgroupfs  /kubepods/burstable/pod<UID>/<id>
//	systemd   /kubepods.slice/kubepods-burstable.slice/
//	          kubepods-burstable-pod<UID, with _ for ->.slice/cri-containerd-<id>.scope
//
// The path may have more components before "kubepods": from --cgroup-root, in a cluster whose nodes
// are containers, or "kubelet" in kind. If the reader has a control group namespace of its own (as
// containers have, with version 2), the path begins with ".." for each step up to the common
// ancestor, and the common part is left out. At most the kubelet's own folders are left out this
// way.
//
// A process that may make control groups below its own (in a container with a writable
// /sys/fs/cgroup, or a user to whom systemd has delegated some) can give them any name. So the
// outermost pod folder in the path determines the pod, and only root can have created the folders
// above it. With systemd, these are slices whose names continue each other from the root on (a
// user's own slices are below a service). With cgroupfs, they are a prefix that the operator has
// configured, or the prefix of the pod that this process itself is in.

// uidPattern matches a pod's UID: one from the API server or, for a static pod, a hash without "-".
const uidPattern = `([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})`

var (
	podSlice  = regexp.MustCompile(`^((?:[a-zA-Z0-9_]+-)*kubepods(?:-burstable|-besteffort)?)-pod` + uidPattern + `\.slice$`)
	podFolder = regexp.MustCompile(`^pod` + uidPattern + `$`)
)

// ErrForged is wrapped by errors about control groups that contradict each other, or that look like
// a pod's in a place where no pod can be.
var ErrForged = errors.New("control groups that nobody should have")

// Cgroups identifies pods by the control groups of their processes.
type Cgroups struct {
	// Prefix is the path before "kubepods": "" or "/", or for example the kubelet's --cgroup-root.
	Prefix string
}

// maxCgroupFile bounds how much of /proc/PID/cgroup is read: a path has at most 4,096 bytes, and
// version 1 has one for each of a dozen controllers.
const maxCgroupFile = 64 << 10

// PodUID finds the UID of the pod that a process is in, from its /proc/PID/cgroup; "": the process
// is in no pod. With version 1, which has a path for each controller, all paths that name a pod
// must name the same.
func (g Cgroups) PodUID(file string) (string, error) {
	found := ""
	for line := range strings.Lines(file) {
		line = strings.TrimSuffix(line, "\n")
		_, rest, ok := strings.Cut(line, ":")
		_, path, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 || !strings.HasPrefix(path, "/") {
			return "", fmt.Errorf("%.80q is no line of /proc/PID/cgroup", line)
		}
		uid := g.ofPath(path)
		switch {
		case uid == "":
		case found != "" && found != uid:
			return "", fmt.Errorf("%w: of pod %s and of pod %s at once", ErrForged, found, uid)
		default:
			found = uid
		}
	}
	return found, nil
}

// ofPath finds the pod in one path.
func (g Cgroups) ofPath(path string) string {
	relative := false
	for strings.HasPrefix(path, "/..") && (len(path) == 3 || path[3] == '/') {
		path, relative = path[3:], true
	}
	steps := strings.Split(strings.Trim(path, "/"), "/")
	prefix := strings.Split(strings.Trim(g.Prefix, "/"), "/")
	if !relative && g.Prefix != "" && prefix[0] != "" {
		if len(steps) < len(prefix) {
			return ""
		}
		for i, p := range prefix {
			if steps[i] != p {
				return ""
			}
		}
		steps = steps[len(prefix):]
	}
	if uid := bySystemd(steps, relative); uid != "" {
		return uid
	}
	return byFolders(steps, relative)
}

// bySystemd follows slices from the outermost on. The name of each extends the name of the slice
// around it. In a relative path the first slice may have any name.
func bySystemd(steps []string, relative bool) string {
	parent := ""
	for i, s := range steps {
		if !strings.HasSuffix(s, ".slice") {
			return ""
		}
		if (i > 0 || !relative) && !continues(parent, s) {
			return ""
		}
		if m := podSlice.FindStringSubmatch(s); m != nil && strings.Count(m[2], "-") == 0 {
			return strings.ReplaceAll(m[2], "_", "-")
		}
		parent = s
	}
	return ""
}

// continues reports whether a slice may be in another one or, with parent "", at the root.
func continues(parent, slice string) bool {
	name, ok := strings.CutSuffix(slice, ".slice")
	above := name[:max(strings.LastIndexByte(name, '-'), 0)]
	if above != "" {
		above += ".slice"
	}
	return ok && above == parent
}

// kubeletFolders are the folders around a pod's folder, without systemd.
var kubeletFolders = []string{"kubelet", "kubepods", "burstable", "besteffort", "guaranteed"}

// byFolders parses kubelet/kubepods/burstable/pod<UID>. A relative path may lack components on the
// left.
func byFolders(steps []string, relative bool) string {
	level := 0 // number of expected folders found so far: kubelet, kubepods, a class
	for i, s := range steps {
		switch {
		case s == "kubelet" && level < 1:
			level = 1
		case s == "kubepods" && level < 2:
			level = 2
		case (s == "burstable" || s == "besteffort" || s == "guaranteed") && (level == 2 || relative && i == 0):
			level = 3
		default:
			m := podFolder.FindStringSubmatch(s)
			if m == nil || strings.Contains(m[1], "_") || level < 2 && (!relative || i > 0) {
				return ""
			}
			return m[1]
		}
	}
	return ""
}

// PrefixOf finds the path before "kubepods" in the /proc/self/cgroup of a process that is in a pod
// and has no control group namespace of its own; "" if it cannot be determined.
func PrefixOf(own string) string {
	for line := range strings.Lines(own) {
		_, rest, _ := strings.Cut(line, ":")
		_, path, _ := strings.Cut(strings.TrimSpace(rest), ":")
		if strings.HasPrefix(path, "/..") {
			continue
		}
		steps := strings.Split(path, "/")
		for i, s := range steps {
			first := i
			switch {
			case podSlice.MatchString(s):
				for first > 0 && continues(steps[first-1], steps[first]) {
					first--
				}
			case podFolder.MatchString(s):
				for first > 0 && slices.Contains(kubeletFolders, steps[first-1]) {
					first--
				}
			default:
				continue
			}
			return strings.Join(steps[:first], "/")
		}
	}
	return ""
}
