package nftwatch

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
)

// envWithout makes TestWithoutSysAdmin run its part that must work without CAP_SYS_ADMIN.
const envWithout = "NETCRAQ_TEST_WITHOUT_SYS_ADMIN"

// TestWithoutSysAdmin: a process with only CAP_NET_ADMIN, such as netcraq-policies, learns of a
// deleted table.
func TestWithoutSysAdmin(t *testing.T) {
	if os.Getenv(envWithout) == "" {
		setpriv, err := exec.LookPath("setpriv")
		if err != nil || os.Getuid() != 0 {
			t.Skip("skipped: needs root and setpriv (util-linux)")
		}
		cmd := exec.Command(setpriv, "--bounding-set=-all,+net_admin", os.Args[0], "-test.run=^TestWithoutSysAdmin$")
		cmd.Env = append(os.Environ(), envWithout+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if name, _ := os.Hostname(); syscall.Sethostname([]byte(name)) == nil {
		t.Fatal("this process has CAP_SYS_ADMIN: the test means nothing")
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	table := conn.AddTable(&nftables.Table{Name: "t", Family: nftables.TableFamilyIPv4})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	looked := make(chan bool, 100)
	ended, err := Watch(t.Context(), func() {
		there, err := Present(conn, table.Name, table.Family)
		looked <- there && err == nil
	})
	if err != nil {
		t.Fatal(err)
	}
	conn.DelTable(table)
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	for end := time.After(Every / 2); ; {
		select {
		case there := <-looked:
			if !there {
				return
			}
		case <-ended:
			t.Fatal("it has ended")
		case <-end:
			t.Fatal("half a second after the table was deleted nobody has looked")
		}
	}
}
