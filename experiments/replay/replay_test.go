package replay

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netcraq/netcraq/etcd-monitor/embedded"
)

const header = "seconds,kind,key,request_bytes,response_bytes,response_count,etcd_time,ttl_lease\n"

func data(t *testing.T) ([]Request, *Export) {
	t.Helper()
	file, err := os.Open("../data/etcd-trace.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	trace, err := ReadTrace(file)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := os.Open("../data/etcd-export.json")
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	export, err := ReadExport(keys)
	if err != nil {
		t.Fatal(err)
	}
	return trace, export
}

func TestTheTraceIsRead(t *testing.T) {
	trace, export := data(t)
	count := map[string]int{}
	for _, q := range trace {
		count[q.Kind]++
	}
	if count[Get] != 658 || count[Put] != 704 || len(export.keys) != 284 {
		t.Errorf("%v, %d keys", count, len(export.keys))
	}
	for name, bad := range map[string]string{"nothing": "", "columns": "a,b\n", "kind": header + "0,steal,/a,1,1,1,1ms,0\n", "time": header + "2,get,/a,1,1,1,1ms,0\n1,get,/a,1,1,1,1ms,0\n"} {
		if _, err := ReadTrace(strings.NewReader(bad)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestAPodThatIsNewHasTheObjectOfAnother(t *testing.T) {
	_, export := data(t)
	var pod string
	for _, k := range export.keys {
		if strings.HasPrefix(k, "/registry/pods/default/") {
			pod = k
		}
	}
	v := export.Value(pod[:len(pod)-1]+"~", 3, 10)
	if len(v) < 2000 || !strings.Contains(string(v), "#3 ") {
		t.Errorf("%d bytes", len(v))
	}
	if v := export.Value("/nowhere/x", 1, 500); len(v) < 400 || len(v) > 600 {
		t.Errorf("%d bytes for a request of 500", len(v))
	}
}

// TestReplay replays the trace at a hundred times its speed, against an etcd that the test starts.
func TestReplay(t *testing.T) {
	trace, export := data(t)
	etcd, err := embedded.Start(t.Context(), embedded.Config{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	conn, err := grpc.NewClient(strings.TrimPrefix(etcd.Endpoint(), "http://"), grpc.WithTransportCredentials(
		insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r, err := Run(context.Background(), Config{Conn: conn, Trace: trace, Export: export, Speed: 100, Fill: true,
		Warm: time.Minute, Limit: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Wrong) > 0 || len(r.Failed) > 0 || r.Requests[Get] != 658 ||
		r.Gets["etcd"]+r.WarmUp["etcd"] != 658 || r.Eligible["eligible"] == 0 {
		t.Errorf("%+v", r)
	}
}
