// Package redishook has the hooks for the program's own Redis client.
package redishook

import (
	"context"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Guard returns a hook that refuses commands for whose context over returns an error.
func Guard(over func(context.Context) error) redis.Hook { return guardHook{over} }

type guardHook struct{ over func(context.Context) error }

func (guardHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g guardHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := g.over(ctx); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (g guardHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := g.over(ctx)
		if err == nil {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

// Name returns a hook that names the spans of this library's scripts.
func Name() redis.Hook { return nameHook{} }

type nameHook struct{}

// procedure is a command that runs a script of this library.
type procedure interface {
	redis.Cmder
	// Procedure returns the name of the script, and the context that the command was
	// sent with.
	Procedure() (name string, sent context.Context)
	// Unknown reports whether the server did not know the script.
	Unknown() bool
}

func (nameHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (nameHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		p, ok := cmd.(procedure)
		if !ok {
			return next(ctx, cmd)
		}
		name(ctx, "", p)
		err := next(ctx, cmd)
		cmd.SetErr(err) // the command remembers it, whatever outer hooks hear
		if p.Unknown() {
			return nil
		}
		return err
	}
}

func (nameHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if p, ok := cmds[0].(procedure); ok {
			name(ctx, "pipeline ", p) // we send nothing but renewals in pipelines
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if p, ok := cmd.(procedure); err != nil && (!ok || cmd.Err() != nil && !p.Unknown()) {
				return err
			}
		}
		return nil
	}
}

// name names the span that another hook has made for a script. Without such a hook, the
// current span is somebody else's, and was so when the command was sent.
func name(ctx context.Context, prefix string, p procedure) {
	name, sent := p.Procedure()
	if span := trace.SpanFromContext(ctx); span.IsRecording() && span != trace.SpanFromContext(sent) {
		span.SetName(prefix + name)
		span.SetAttributes(attribute.String("db.stored_procedure.name", name), attribute.String("db.statement", name))
	}
}
