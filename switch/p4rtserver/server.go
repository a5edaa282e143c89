package p4rtserver

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
	"github.com/netcraq/netcraq/switch/target"
)

// APIVersion is the version of the P4Runtime API that the server implements.
const APIVersion = translate.APIVersion

// MaxMessage is the size of the largest message that the server accepts, in bytes. A pipeline
// configuration has megabytes, and gRPC's default limit is 4 MiB.
const MaxMessage = 256 << 20

// Options configures a Server.
type Options struct {
	// DeviceID is the device id that requests must contain.
	DeviceID uint64
	// Log receives messages for the switch's operator. If it is nil, the server uses
	// slog.Default().
	Log *slog.Logger
}

// Server is a P4Runtime server for one device.
type Server struct {
	p4v1.UnimplementedP4RuntimeServer

	dev target.Device
	id  uint64
	log *slog.Logger

	arb arbiter

	// state is the lock of the configuration. Write and SetForwardingPipelineConfig hold it for
	// writing. Read and GetForwardingPipelineConfig hold it for reading.
	state sync.RWMutex
	live  *config // the configuration that the device runs; nil before the first program
	// a configuration that is saved but not committed, to which reads and writes refer
	saved *config

	// State that other protocols have set (see Local).
	source []byte // the BMv2 JSON of a program that runs without a P4Info
	// a pipeline that is loaded but does not run yet; nil if there is none
	loaded        target.Pipeline
	loadedSource  []byte
	onReplication func(target.Pipeline)
	onIdle        func(target.Pipeline, []target.IdleEntry)
	sweeping      atomic.Bool // a check for idle entries is scheduled
	onDigest      atomic.Pointer[func(*bmv2json.Program, target.Digest)]
	program       atomic.Pointer[bmv2json.Program] // the running program

	current atomic.Pointer[config] // same as live, for code that handles packets and takes no lock
	// number of packet-ins and digests that no controller could receive
	dropped atomic.Uint64
}

// New creates a Server for dev and takes over dev's packet-in and digest callbacks.
func New(dev target.Device, opts Options) *Server {
	s := &Server{dev: dev, id: opts.DeviceID, log: opts.Log}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.arb.init(opts.DeviceID)
	dev.OnPacketIn(s.packetIn)
	dev.OnDigest(s.digest)
	return s
}

// Register adds the P4Runtime service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { p4v1.RegisterP4RuntimeServer(r, s) }

// ServerOptions returns the gRPC options that the service needs.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(MaxMessage)}
}

// Capabilities implements the RPC of that name.
func (s *Server) Capabilities(context.Context,
	*p4v1.CapabilitiesRequest) (*p4v1.CapabilitiesResponse, error) {
	return &p4v1.CapabilitiesResponse{P4RuntimeApiVersion: APIVersion}, nil
}

func (s *Server) checkDevice(id uint64) error {
	if id != s.id {
		return status.Errorf(codes.NotFound, "there is no device %d here; this is device %d", id,
			s.id)
	}
	return nil
}

// effective returns the configuration to which entity requests refer. The caller holds s.state.
func (s *Server) effective() (*config, error) {
	if s.saved != nil {
		return s.saved, nil
	}
	if s.live != nil {
		return s.live, nil
	}
	return nil, status.Error(codes.FailedPrecondition,
		"no forwarding pipeline configuration is set; push one with SetForwardingPipelineConfig")
}
