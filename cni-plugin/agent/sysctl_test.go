package agent

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadOnlySysctls checks that the agent can write a setting in a container without all
// privileges, where /proc/sys is read-only.
func TestReadOnlySysctls(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root, for namespaces")
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and the namespaces with it
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Mount(sysctls, sysctls, "", unix.MS_BIND, ""); err != nil {
				return err
			}
			if err := unix.Mount("", sysctls, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
				return err
			}
			const path = "ipv4/conf/lo/rp_filter"
			if err := os.WriteFile(sysctls+"/net/"+path, []byte("2"), 0o644); err == nil {
				t.Error("the folder can be written to: this test shows nothing")
			}
			_, err := setSysctl(path, "2")
			return err
		}()
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
