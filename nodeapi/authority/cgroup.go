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
// The path may have more components before "kubepods". They come from --cgroup-root, or from the
// container of a node that is itself a container. In kind the component is "kubelet". The process
// that reads the path may have its own control group namespace, as containers with version 2 do.
// Then the path begins with ".." for each step up to the common ancestor, and lacks the common
// part. The common part consists at most of the kubelet's own folders.
//
// Some processes may make control groups below their own, with any name. Examples are a process in
// a container with a writable /sys/fs/cgroup, or a user to whom systemd has delegated control
// groups. So the outermost pod folder in the path determines the pod, and only root can have
// created the folders above it. With systemd, the folders above it are slices. From the root on,
// the name of each slice extends the name of the slice above it. A user's own slices are always
// below a service. With cgroupfs, the folders above it are a prefix. The operator has configured
// the prefix, or it is the prefix of this process's own pod.

// uidPattern matches the UID of a pod. The API server makes the UID or, for a static pod, it is a
// hash without "-".
const uidPattern = `([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})`

var (
	podSlice  = regexp.MustCompile(`^((?:[a-zA-Z0-9_]+-)*kubepods(?:-burstable|-besteffort)?)-pod` + uidPattern + `\.slice$`)
	podFolder = regexp.MustCompile(`^pod` + uidPattern + `$`)
)

// ErrForged means that the control groups of a process contradict each other, or look like those of
// a pod in a place where no pod can be. Other errors wrap it.
var ErrForged = errors.New("control groups that nobody should have")

// Cgroups finds the pod of a process by the process's control groups.
type Cgroups struct {
	// Prefix is the path before "kubepods". It is "", "/" or, for example, the kubelet's
	// --cgroup-root.
	Prefix string
}

// maxCgroupFile is the maximum number of bytes that are read from /proc/PID/cgroup. A path has at
// most 4,096 bytes, and version 1 has one path for each of a dozen controllers.
const maxCgroupFile = 64 << 10

// PodUID returns the UID of the pod that a process is in. It finds the pod in the text of the
// process's /proc/PID/cgroup. It returns "" if the process is not in a pod. Version 1 has a path
// for each controller, and all paths that name a pod must name the same pod.
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

// ofPath returns the UID of the pod that one path names.
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

// bySystemd follows the slices in a path from the outermost slice on. The name of each slice
// extends the name of the slice around it. In a relative path the first slice may have any name.
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

// continues reports whether slice can be directly below the slice parent. An empty parent means the
// root.
func continues(parent, slice string) bool {
	name, ok := strings.CutSuffix(slice, ".slice")
	above := name[:max(strings.LastIndexByte(name, '-'), 0)]
	if above != "" {
		above += ".slice"
	}
	return ok && above == parent
}

// kubeletFolders are the folders around a pod's folder if systemd does not manage the control
// groups.
var kubeletFolders = []string{"kubelet", "kubepods", "burstable", "besteffort", "guaranteed"}

// byFolders parses a path such as kubelet/kubepods/burstable/pod<UID>. A relative path may lack
// components at the beginning.
func byFolders(steps []string, relative bool) string {
	level := 0 // number of expected folders found up to here: kubelet, kubepods, and a class such as burstable
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

// PrefixOf returns the path before "kubepods" in a /proc/self/cgroup. The process must be in a pod
// without its own control group namespace. PrefixOf returns "" if it cannot determine the path.
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
