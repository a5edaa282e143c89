package server

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/internal/testutil/growth"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
)

// pair returns both ends of a connection that has no socket file.
func pair(t testing.TB) (client *net.UnixConn, server net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		ends[i], err = net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	return ends[0].(*net.UnixConn), ends[1]
}

// converse sends bytes to the server, and returns all answers.
func converse(t testing.TB, s *Server, sent []byte) []byte {
	t.Helper()
	client, nc := pair(t)
	defer client.Close()
	s.take(nc)
	_ = client.SetDeadline(time.Now().Add(soon))
	sent = bytes.Clone(sent) // copy the bytes, because the fuzz engine reuses them after its target has returned
	go func() {
		_, _ = client.Write(sent)
		_ = client.CloseWrite()
	}()
	got, err := io.ReadAll(client)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Fatalf("the connection does not end; answered so far: %.1000q", got)
	}
	return got
}

var seeds = []struct {
	name string
	data any
}{
	{nodeapi.FuncHello, nodeapi.Hello{Client: clientA, Agent: "fuzz", DrainNotice: true}},
	{nodeapi.FuncPing, nil},
	{nodeapi.FuncCancel, nodeapi.CancelData{ID: 1}},
	{nodeapi.FuncGet, nodeapi.GetData{Key: nodeapi.Key{Key: "k"}, Eventual: true}},
	{nodeapi.FuncGetMany, nodeapi.GetManyData{Keys: []string{"k", "l"}}},
	{nodeapi.FuncPut, nodeapi.PutData{Key: nodeapi.Key{Key: "k"}, ValueBase64: []byte{255}}},
	{nodeapi.FuncCAS, nodeapi.CASData{PutData: nodeapi.PutData{Key: nodeapi.Key{Key: "k"}, Value: new("v")}, Version: "1.1"}},
	{nodeapi.FuncDelete, nodeapi.DeleteData{Key: nodeapi.Key{Key: "k"}, Version: "1.1"}},
	{nodeapi.FuncIncrement, nodeapi.IncrementData{Key: nodeapi.Key{Key: "n"}, By: new(int64(-3))}},
	{nodeapi.FuncTransact, nodeapi.TransactData{Compare: []nodeapi.Comparison{{Key: "k", Version: "1.1"},
		{Key: "l", Value: new("v")}, {Key: "m", Absent: true}}, Write: []nodeapi.TransactWrite{
		{Key: "k", ValueBase64: []byte{255}, Lease: "0123456789ab"}, {Key: "n", Delete: true}}}},
	{nodeapi.FuncWatch, nodeapi.WatchData{Keys: []string{"k"}, Prefix: new(""), After: map[string]string{"k": "1.1"}}},
	{nodeapi.FuncGrant, nodeapi.GrantData{TTLMillis: 500}},
	{nodeapi.FuncKeepAlive, nodeapi.LeaseData{Lease: "0123456789ab"}},
	{nodeapi.FuncListLeases, nodeapi.ListLeasesData{Limit: 3}},
	{nodeapi.FuncLock, nodeapi.LockData{Name: "l", WaitMillis: new(0)}},
	{nodeapi.FuncUnlock, nodeapi.UnlockData{Name: "l", Token: "1"}},
	{nodeapi.FuncAcquire, nodeapi.LockData{Name: "l", Permits: 2, WaitMillis: new(0)}},
	{nodeapi.FuncRegisterService, nodeapi.ServiceData{Service: "s", Address: "10.0.0.1:80"}},
	{nodeapi.FuncGetService, nodeapi.GetServiceData{Service: "s", Order: "nearest"}},
	{nodeapi.FuncWatchService, nodeapi.GetServiceData{Service: "s"}},
	{nodeapi.FuncOpenStream, nodeapi.OpenStreamData{Stream: "s", Config: fuzzed}},
	{nodeapi.FuncListStreams, nodeapi.ListStreamsData{}},
	{nodeapi.FuncAppend, nodeapi.AppendData{StreamData: ofStream, Records: []nodeapi.RecordData{
		{Value: new("v"), Mark: 1, Files: []string{fuzzedFile}}}, At: new(uint64(0))}},
	{nodeapi.FuncRead, nodeapi.ReadData{StreamData: ofStream, Consumer: "c", MaxRecords: 1, MaxBytes: 10, WaitMillis: 1}},
	{nodeapi.FuncSubscribe, nodeapi.SubscribeData{StreamData: ofStream, Partitions: []int{1, 0},
		From:     nodeapi.FromLatest,
		Consumer: "c", Skip: true}},
	{nodeapi.FuncDeleteStream, ofStream},
	{nodeapi.FuncMakeFile, nodeapi.MakeFileData{Bytes: 4096, Rewritable: true}},
	{nodeapi.FuncSealFile, nodeapi.SealFileData{File: fuzzedFile, Key: "k"}},
	{nodeapi.FuncOpenFile, nodeapi.OpenFileData{Key: "k", Rewritable: true}},
	{nodeapi.FuncOpenFiles, nodeapi.OpenFilesData{Files: []string{fuzzedFile}, GiveBack: []string{fuzzedFile}}},
	{nodeapi.FuncRewriteFile, nodeapi.RewriteFileData{Files: []string{fuzzedFile}, WaitMillis: 1}},
}

var (
	ofStream = nodeapi.StreamData{Stream: "s"}
	fuzzed   = &nodeapi.StreamConfig{Partitions: 2, ObjectBytes: 1024, Objects: 4, StallMillis: 1, KeepMillis: 1}
)

const fuzzedFile = "0123456789abcdef0123456789abcdef"

// onAStream is a sequence of requests about an existing stream.
const onAStream = `{"id":1,"func":"openStream","data":{"stream":"s","config":{"volatile":true,"objectBytes":1024,"objects":4}}}
{"id":2,"func":"subscribe","data":{"stream":"s","consumer":"c"}}
{"id":3,"func":"append","data":{"stream":"s","records":[{"value":"a"},{"valueBase64":"AAAA","mark":7}]}}
{"id":4,"func":"read","data":{"stream":"s","offset":1,"consumer":"d"}}
{"id":5,"func":"cancel","data":{"id":2}}
{"id":6,"func":"makeFile","data":{"bytes":1}}
{"id":7,"func":"deleteStream","data":{"stream":"s"}}
`

// FuzzJSON sends arbitrary input as lines of JSON. The server must answer in lines of JSON and end
// the connection. Afterwards it must hold nothing for the connection.
func FuzzJSON(f *testing.F) {
	for i, seed := range seeds {
		data, _ := json.Marshal(seed.data)
		line, _ := json.Marshal(nodeapi.Request{ID: uint64(i + 1), Func: seed.name, Data: data, Once: 1,
			TimeoutMillis: 10})
		f.Add(append(line, '\n'))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte(onAStream))
	f.Add([]byte(`{"id":1,"func":"ping"}` + "\n" + `{"id":1e400}` + "\n[[[[[[[\n\n{\"id\":\"\\ud800\"}\n"))
	s, _ := start(f, Config{})
	watch := growth.Watch()
	f.Fuzz(func(t *testing.T, sent []byte) {
		watch(t)
		if len(sent) > 0 && sent[0] == nodeapi.Preface[0] {
			t.Skip()
		}
		answers := json.NewDecoder(bytes.NewReader(converse(t, s, sent)))
		for answers.More() {
			var r nodeapi.Response
			if err := answers.Decode(&r); err != nil {
				t.Fatal(err)
			}
			if (r.Data == nil) == (r.Error == nil) {
				t.Errorf("an answer with data and error, or neither: %+v", r)
			}
		}
	})
}

// FuzzCompact sends arbitrary input in the compact framing. The server must answer in that framing
// and end the connection. Afterwards it must hold nothing for the connection. If `framed` is true,
// the input is one message without its length. Otherwise the input also contains the lengths.
func FuzzCompact(f *testing.F) {
	for i, seed := range seeds {
		b, err := rpc.CborWrite.Marshal([]any{i + 1, seed.name, seed.data, 10, 1, 0})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, true)
		f.Add(binary.BigEndian.AppendUint32(nil, uint32(len(b))), false)
	}
	f.Add([]byte("\xff\xff\xff\xff"), false)
	f.Add(bytes.Repeat([]byte{0x81}, 1000), true) // many nested arrays
	s, _ := start(f, Config{})
	watch := growth.Watch()
	f.Fuzz(func(t *testing.T, sent []byte, framed bool) {
		watch(t)
		b := []byte(nodeapi.Preface)
		if framed {
			b = binary.BigEndian.AppendUint32(b, uint32(len(sent)))
		}
		got := converse(t, s, append(b, sent...))
		for len(got) > 0 {
			message, size, failed := rpc.Compact{}.Next(got)
			if failed != nil || size == 0 {
				t.Fatalf("answered no message: %x", got)
			}
			var r []any
			if err := rpc.CborRead.Unmarshal(message, &r); err != nil || len(r) != 4 {
				t.Fatalf("answered %x: %v", message, err)
			}
			got = got[size:]
		}
	})
}
