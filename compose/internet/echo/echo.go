// Package echo is a gRPC service of one method, a stream in both directions that
// says each text that it is told. It has no generated code: its messages are the
// StringValue of the protobuf library.
package echo

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const method = "/sallyport.Echo/Talk"

var stream = grpc.StreamDesc{StreamName: "Talk", Handler: talk, ServerStreams: true, ClientStreams: true}

// Register adds the service to a server.
func Register(s grpc.ServiceRegistrar) {
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "sallyport.Echo", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{stream}}, struct{}{})
}

func talk(_ any, s grpc.ServerStream) error {
	for {
		var m wrapperspb.StringValue
		if err := s.RecvMsg(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("hear: %w", err)
		}
		if err := s.SendMsg(&m); err != nil {
			return fmt.Errorf("echo: %w", err)
		}
	}
}

// Talk says the texts one after another and waits for each echo before the next.
func Talk(ctx context.Context, c grpc.ClientConnInterface, texts []string) (heard []string, err error) {
	s, err := c.NewStream(ctx, &stream, method)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", method, err)
	}
	for _, text := range texts {
		if err := s.SendMsg(wrapperspb.String(text)); err != nil {
			return heard, fmt.Errorf("say %q: %w", text, err)
		}
		var m wrapperspb.StringValue
		if err := s.RecvMsg(&m); err != nil {
			return heard, fmt.Errorf("hear %q: %w", text, err)
		}
		heard = append(heard, m.GetValue())
	}
	if err := s.CloseSend(); err != nil {
		return heard, fmt.Errorf("end %s: %w", method, err)
	}
	if err := s.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, io.EOF) {
		return heard, fmt.Errorf("%s does not end: %w", method, err)
	}
	return heard, nil
}
