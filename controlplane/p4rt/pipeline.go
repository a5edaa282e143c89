package p4rt

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/api/gunzip"
)

// Pipeline is a compiled program: its P4Info and the target's configuration (for BMv2 and
// compatible switches, p4c's JSON).
type Pipeline struct {
	Info         *Info
	DeviceConfig []byte
	// Cookie is a hash of both parts of the Pipeline. The switch stores it with the program. If the
	// switch has the same cookie, the same program is already running. It is never 0.
	Cookie uint64
}

// LoadPipeline reads a program in the form that p4c writes. The JSON may be compressed
// (NAME.json.gz).
func LoadPipeline(p4info, deviceConfig string) (*Pipeline, error) {
	info, err := LoadInfo(p4info)
	if err != nil {
		return nil, err
	}
	config, err := os.ReadFile(deviceConfig)
	if err == nil {
		config, err = gunzip.Bytes(config)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the compiled program: %w", err)
	}
	p, err := NewPipeline(info, config)
	if err != nil {
		return nil, fmt.Errorf("the compiled program %s: %w", deviceConfig, err)
	}
	return p, nil
}

// NewPipeline makes a pipeline from its parts.
func NewPipeline(info *Info, deviceConfig []byte) (*Pipeline, error) {
	if !json.Valid(deviceConfig) {
		return nil, fmt.Errorf("this is not JSON; give the file that p4c-bm2-ss wrote (-o)")
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(info.P4Info)
	if err != nil {
		return nil, fmt.Errorf("encoding the P4Info: %w", err)
	}
	h := sha256.New()
	// Hash the length, too, so that the boundary between the two parts counts.
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
	h.Write(b)
	h.Write(deviceConfig)
	cookie := binary.BigEndian.Uint64(h.Sum(nil)) | 1 // never 0, because a switch without a cookie reports 0
	return &Pipeline{Info: info, DeviceConfig: deviceConfig, Cookie: cookie}, nil
}

// Pushed says what EnsurePipeline has done.
type Pushed int

const (
	Kept      Pushed = iota // the program was already running, and nothing was changed
	Committed               // the program was loaded, and the switch's state is empty
	// Reconciled says that another build of the program was running. The switch loaded this build
	// and kept its tables as far as possible. Some switches keep registers (netcraq-switch), and
	// others empty them (BMv2).
	Reconciled
)

func (p Pushed) String() string { return [...]string{"kept", "committed", "reconciled"}[p] }

// Cookie returns the cookie of the switch's program. It is 0 if the switch runs no program, or if
// the program was loaded without a cookie.
func (c *Client) Cookie(ctx context.Context) (uint64, error) {
	config, err := c.pipelineConfig(ctx, v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY)
	return config.GetCookie().GetCookie(), err
}

// pipelineConfig returns the running program's configuration, or nil if the switch runs no program.
func (c *Client) pipelineConfig(ctx context.Context, what v1.GetForwardingPipelineConfigRequest_ResponseType) (
	*v1.ForwardingPipelineConfig, error) {
	ctx, cancel := c.rpcContext(ctx)
	defer cancel()
	resp, err := c.rpc.GetForwardingPipelineConfig(ctx,
		&v1.GetForwardingPipelineConfigRequest{DeviceId: c.o.DeviceID, ResponseType: what},
		grpc.MaxCallRecvMsgSize(largestPipeline))
	switch status.Code(err) {
	case codes.OK:
		return resp.GetConfig(), nil
	case codes.FailedPrecondition, codes.NotFound: // the switch has no pipeline yet
		return nil, nil
	}
	return nil, fmt.Errorf("asking %s for its pipeline: %w", c.o.Name, err)
}

// Running returns the P4Info and the cookie of the switch's program. The P4Info is nil if the
// switch runs no program.
func (c *Client) Running(ctx context.Context) (*configv1.P4Info, uint64, error) {
	config, err := c.pipelineConfig(ctx, v1.GetForwardingPipelineConfigRequest_P4INFO_AND_COOKIE)
	return config.GetP4Info(), config.GetCookie().GetCookie(), err
}

// EnsurePipeline makes the switch run p. If the switch already runs p, it does nothing. The client
// must be primary.
func (c *Client) EnsurePipeline(ctx context.Context, p *Pipeline) (Pushed, error) {
	st, err := c.primaryStream(anyStream)
	if err != nil {
		return Kept, c.notLoaded(err)
	}
	running, err := c.pipelineConfig(ctx, v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY)
	if err != nil {
		return Kept, err
	}
	if running.GetCookie().GetCookie() == p.Cookie {
		return Kept, nil
	}
	if running.GetCookie().GetCookie() != 0 {
		// The switch runs another program, or another build of this one. The table entries can stay
		// only if the ids of both programs mean the same.
		running, err = c.pipelineConfig(ctx, v1.GetForwardingPipelineConfigRequest_P4INFO_AND_COOKIE)
		if err != nil {
			return Kept, err
		}
		if SameMeaning(running.GetP4Info(), p.Info.P4Info) {
			err := c.setPipeline(ctx, st, p, v1.SetForwardingPipelineConfigRequest_RECONCILE_AND_COMMIT)
			switch code := status.Code(err); {
			case err == nil:
				return Reconciled, nil
			case code == codes.Unimplemented:
			case isAnswer(err) && code != codes.PermissionDenied, code == codes.Unknown, code == codes.Internal:
				// The switch has refused to reconcile. PI refuses with UNKNOWN in the middle of
				// loading, because it replays counters with INSERT, which it does not support. So
				// the stream has ended, and PI accepts no other program until a request tells it to
				// continue with this one. Another target refuses that request, which does no harm.
				if errors.Is(err, ErrOutcomeUnknown) {
					if st, err = c.later(ctx, st); err != nil {
						return Kept, c.notLoaded(err)
					}
				}
				err = c.setPipeline(ctx, st, p, v1.SetForwardingPipelineConfigRequest_COMMIT)
				if errors.Is(err, ErrOutcomeUnknown) {
					if st, err = c.later(ctx, st); err != nil {
						return Kept, c.notLoaded(err)
					}
				}
			default: // this error does not refuse to reconcile
				return Kept, err
			}
		}
	}
	return Committed, c.setPipeline(ctx, st, p, v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT)
}

// ReloadIn loads p into the switch although the switch already runs it, which empties all tables,
// registers and counters. It uses a given stream (State.Stream), like WriteIn.
func (c *Client) ReloadIn(ctx context.Context, stream int, p *Pipeline) error {
	st, err := c.primaryStream(stream)
	if err != nil {
		return c.notLoaded(err)
	}
	return c.setPipeline(ctx, st, p, v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT)
}

// Reload is ReloadIn under the present stream.
func (c *Client) Reload(ctx context.Context, p *Pipeline) error { return c.ReloadIn(ctx, anyStream, p) }

func (c *Client) notLoaded(err error) error {
	return fmt.Errorf("loading the program into %s (device id %d): %w", c.o.Name, c.o.DeviceID, err)
}

// setPipeline makes one request to load a program, under a stream's election id.
func (c *Client) setPipeline(ctx context.Context, st *stream, p *Pipeline,
	action v1.SetForwardingPipelineConfigRequest_Action) error {
	err := c.change(ctx, st, func(ctx context.Context) error {
		_, err := c.rpc.SetForwardingPipelineConfig(ctx, &v1.SetForwardingPipelineConfigRequest{
			DeviceId:   c.o.DeviceID,
			ElectionId: st.election.proto(),
			Action:     action,
			Config: &v1.ForwardingPipelineConfig{
				P4Info:         p.Info.P4Info,
				P4DeviceConfig: p.DeviceConfig,
				Cookie:         &v1.ForwardingPipelineConfig_Cookie{Cookie: p.Cookie},
			},
		})
		return notPrimary(err)
	})
	if err != nil {
		return c.notLoaded(fmt.Errorf("%v: %w", action, err))
	}
	return nil
}
