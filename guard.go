package holdfast

import (
	"context"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// GuardHook returns a hook for the program's own Redis client that refuses every
// command, and every pipeline as a whole, whose context comes from a lease that is over:
// lost, or released. The error matches [ErrLost], and nothing is sent.
//
//	rdb.AddHook(holdfast.GuardHook())
//
//	lease, err := mu.Lease(ctx)
//	rdb.Set(lease.Context(), "order:42", state, 0) // fails if the lock was lost
//
// So a holder that was paused for too long does not write when it wakes up, without
// looking at [Lease.Err] before each command. It looks at the clock just before the
// command is sent; a pause between that and the arrival at the server it cannot see. Only
// a fence helps there. A command that is under way when the lease ends may fail like any
// whose context ends; [context.Cause] says why.
//
// On a [redis.ClusterClient] commands within Watch pass only through the hooks of the
// nodes, so add it there, too, with OnNewNode. Commands that are combined by an
// AutoPipeline are sent with a context that is not theirs, and cannot be guarded; ask
// [Lease.Err] before. The commands of this library are never refused.
func GuardHook() redis.Hook { return guardHook{} }

type guardHook struct{}

func (guardHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (guardHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := over(ctx); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (guardHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := over(ctx)
		if err == nil {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

// NameHook returns a hook for the program's own Redis client that gives the spans of
// this library's scripts a name such as "holdfast.mutex.acquire", instead of "evalsha",
// and says it in the attribute db.stored_procedure.name. It is for use with redisotel,
// and must be added after that, for it needs to be within its span:
//
//	redisotel.InstrumentTracing(rdb)
//	rdb.AddHook(holdfast.NameHook())
//
// With a [redis.ClusterClient], where the spans are those of the nodes:
//
//	redisotel.InstrumentTracing(rdb)
//	rdb.OnNewNode(func(node *redis.Client) { node.AddHook(holdfast.NameHook()) })
//
// A server that does not know a script yet answers NOSCRIPT, and is sent the text. That
// is no error, and is not shown as one. In the wrong order it does nothing.
//
// By default redisotel puts the arguments of commands in the attribute db.statement, and
// so the tokens of leases. This hook puts the name of the script in their place. Without
// it, use redisotel.WithDBStatement(false).
func NameHook() redis.Hook { return nameHook{} }

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

// name names the span that another hook has made for a script. If there is none, the
// current span is somebody else's, and was that when the command was sent.
func name(ctx context.Context, prefix string, p procedure) {
	name, sent := p.Procedure()
	if span := trace.SpanFromContext(ctx); span.IsRecording() && span != trace.SpanFromContext(sent) {
		span.SetName(prefix + name)
		span.SetAttributes(attribute.String("db.stored_procedure.name", name), attribute.String("db.statement", name))
	}
}
