package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"

	"github.com/netcraq/netcraq/experiments/doors"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/durable"
	"github.com/netcraq/netcraq/nodeapi/server"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// service serves the store over gRPC.
type service struct{ store store.Store }

func (s service) get(ctx context.Context, in *doors.GetRequest) (*doors.Item, error) {
	item, err := s.store.Get(ctx, store.Key{Namespace: in.Namespace, Name: in.Key}, in.Eventual)
	if err != nil {
		return nil, err
	}
	c, err := cell.Decode(item.Value)
	if err != nil {
		return nil, err
	}
	return &doors.Item{Key: item.Key.Name, Found: item.Found, Value: c.Value, Version: item.Version.String()}, nil
}

// description is the service description that protoc-gen-go-grpc would generate.
var description = grpc.ServiceDesc{
	ServiceName: "netcraq.doors.Doors", HandlerType: (*any)(nil), Metadata: "doors.proto",
	Methods: []grpc.MethodDesc{{MethodName: "Get", Handler: func(srv any, ctx context.Context, decode func(any) error,
		interceptor grpc.UnaryServerInterceptor) (any, error) {
		in := new(doors.GetRequest)
		if err := decode(in); err != nil {
			return nil, err
		}
		if interceptor == nil {
			return srv.(service).get(ctx, in)
		}
		info := &grpc.UnaryServerInfo{Server: srv, FullMethod: "/netcraq.doors.Doors/Get"}
		return interceptor(ctx, in, info, func(ctx context.Context, req any) (any, error) {
			return srv.(service).get(ctx, req.(*doors.GetRequest))
		})
	}}},
}

// serve starts all servers, and prints their addresses. With an etcd, it also starts a node API
// with durable keys.
func serve(ctx context.Context, directory, etcd string, out io.Writer) error {
	memory := store.NewMemory(1024)
	if _, err := memory.Put(ctx, store.Key{Namespace: namespace, Name: key},
		cell.Cell{Kind: cell.Plain, Value: []byte(strings.Repeat("v", valueSize))}.Encode()); err != nil {
		return err
	}
	api := server.New(server.Config{Store: memory, Name: "netcraq-doors", Node: "bench", Namespace: namespace})
	rpc := grpc.NewServer()
	rpc.RegisterService(&description, service{memory})
	failed := make(chan error, 5)
	where := map[string]string{}
	open := func(door, network, address string, serve func(net.Listener) error) error {
		l, err := net.Listen(network, address)
		if err != nil {
			return err
		}
		where[door] = l.Addr().String()
		if network == "tcp" {
			where[door] = "tcp://" + where[door]
		}
		context.AfterFunc(ctx, func() { l.Close() })
		go func() { failed <- serve(l) }()
		return nil
	}
	type door struct {
		door, network, address string
		serve                  func(net.Listener) error
	}
	all := []door{
		{"echo", "unix", filepath.Join(directory, "echo.sock"), echo},
		{"node", "unix", filepath.Join(directory, "node.sock"), api.Serve},
		{"grpc-unix", "unix", filepath.Join(directory, "grpc.sock"), rpc.Serve},
		{"grpc-tcp", "tcp", "127.0.0.1:0", rpc.Serve},
	}
	if etcd != "" {
		connection, err := durable.Dial(durable.Access{Endpoints: []string{etcd}})
		if err != nil {
			return err
		}
		defer connection.Close()
		lasting := durable.New(durable.Options{Etcd: connection})
		defer lasting.Close()
		second := server.New(server.Config{Store: lasting, Name: "netcraq-doors", Node: "bench", Namespace: namespace,
			Durable: func(string) bool { return true }})
		defer second.Close()
		all = append(all, door{"durable", "unix", filepath.Join(directory, "durable.sock"), second.Serve})
	}
	for _, d := range all {
		if err := open(d.door, d.network, d.address, d.serve); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(out).Encode(where); err != nil {
		return err
	}
	select {
	case err := <-failed:
		if ctx.Err() == nil {
			return err
		}
	case <-ctx.Done():
	}
	rpc.Stop()
	return api.Close()
}

// echo sends all received bytes back. It measures the cost of only the socket.
func echo(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			b := make([]byte, 64<<10)
			for {
				n, err := c.Read(b)
				if err != nil {
					return
				}
				if _, err := c.Write(b[:n]); err != nil {
					return
				}
			}
		}()
	}
}
