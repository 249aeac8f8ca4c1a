package zkdriver

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// sendBuffer bounds a request, and batch how much of it a part of a large one is.
const (
	sendBuffer = 256 << 10
	batch      = 64 << 10
)

// none is the answer to a request that has none.
type none = struct{}

// look reads the claims on a lock.
func (d *Driver) look(ctx context.Context, s *session, l lock) (*queue, error) {
	for {
		children, err := d.children(ctx, s, l.dir)
		if errors.Is(err, zk.ErrNoNode) {
			return &queue{}, nil
		}
		if err != nil {
			return nil, err
		}
		limit := int64(0)
		if l.kind == driver.Semaphore {
			var made int64
			if limit, made, err = d.limit(ctx, s, l); err != nil {
				return nil, err
			}
			if made != children.stat.Czxid {
				continue // It is another node now.
			}
		}
		q, err := arrange(l.dir, children.nodes, limit)
		if err == nil {
			q.made = children.stat.Czxid
		}
		return q, err
	}
}

// found is the children of a node.
type found struct {
	nodes []string
	stat  *zk.Stat
}

func (d *Driver) children(ctx context.Context, s *session, path string) (found, error) {
	return call(ctx, s, func(c *zk.Conn) (found, error) {
		nodes, stat, err := c.Children(path)
		return found{nodes, stat}, err
	})
}

// limit reads the limit that is in force for a semaphore, 0 for none, and which change made it.
func (d *Driver) limit(ctx context.Context, s *session, l lock) (limit, made int64, err error) {
	is, err := d.read(ctx, s, l.dir)
	if errors.Is(err, zk.ErrNoNode) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	if limit, err = strconv.ParseInt(string(is.data), 10, 64); err != nil || limit < 1 {
		return 0, 0, &foreign{l.dir}
	}
	return limit, is.stat.Czxid, nil
}

// content is what a node says.
type content struct {
	path string
	data []byte
	stat *zk.Stat
}

func (d *Driver) read(ctx context.Context, s *session, path string) (content, error) {
	return call(ctx, s, func(c *zk.Conn) (content, error) {
		data, stat, err := c.Get(path)
		return content{path, data, stat}, err
	})
}

// sync has the member of the session catch up with the leader.
func (d *Driver) sync(ctx context.Context, s *session) error {
	_, err := call(ctx, s, func(c *zk.Conn) (string, error) { return c.Sync("/") })
	return err
}

// buried reports whether a token was given up.
func (d *Driver) buried(ctx context.Context, s *session, l lock, token string) (bool, error) {
	return call(ctx, s, func(c *zk.Conn) (bool, error) {
		there, _, err := c.Exists(d.grave(l, token))
		return there, err
	})
}

// enter makes a claim, beside kin if there is one, and returns the name of its node.
func (d *Driver) enter(ctx context.Context, s *session, l lock, own *claim, r record, kin *claim) (string, error) {
	create := &zk.CreateRequest{Path: l.dir + "/" + own.title(kin), Data: r.bytes(), Acl: d.acl(), Flags: zk.FlagEphemeralSequential}
	var path string
	var err error
	if kin == nil {
		path, err = write(ctx, s, func(c *zk.Conn) (string, error) { return c.Create(create.Path, create.Data, create.Flags, create.Acl) })
	} else {
		path, err = d.multi(ctx, s, create, &zk.CheckVersionRequest{Path: l.dir + "/" + kin.node, Version: -1})
	}
	return strings.TrimPrefix(path, l.dir+"/"), err
}

// move replaces a claim by another one, with its place, if the claim is still there, and kin if any.
//
// It is made before the old one goes, so that even half of the request would let nobody in.
func (d *Driver) move(ctx context.Context, s *session, l lock, old, own *claim, r record, place *claim, also ...any) (string, error) {
	create := &zk.CreateRequest{Path: l.dir + "/" + own.title(place), Data: r.bytes(), Acl: d.acl(), Flags: zk.FlagEphemeralSequential}
	ops := slices.Concat([]any{create, &zk.DeleteRequest{Path: l.dir + "/" + old.node, Version: -1}}, also)
	path, err := d.multi(ctx, s, ops...)
	return strings.TrimPrefix(path, l.dir+"/"), err
}

// multi carries out all or nothing, and returns the path that the first of the requests has made.
func (d *Driver) multi(ctx context.Context, s *session, ops ...any) (string, error) {
	done, err := write(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) { return c.Multi(ops...) })
	if err != nil || len(done) == 0 {
		return "", err
	}
	return done[0].String, nil
}

// check finds out which of the nodes are there. If any is, it is a write, and so proves what the
// leader knows of the session.
func (d *Driver) check(ctx context.Context, s *session, paths []string) (gone map[string]bool, err error) {
	gone = map[string]bool{}
	for len(paths) > 0 {
		n, size := 0, 0
		for n < len(paths) && size < batch {
			size += len(paths[n]) + 32
			n++
		}
		part := slices.Clone(paths[:n])
		paths = paths[n:]
		for len(part) > 0 {
			var ops []any
			for _, p := range part {
				ops = append(ops, &zk.CheckVersionRequest{Path: p, Version: -1})
			}
			done, err := write(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) { return c.Multi(ops...) })
			if err == nil {
				break
			}
			first := slices.IndexFunc(done, func(r zk.MultiResponse) bool { return errors.Is(r.Error, zk.ErrNoNode) })
			if !errors.Is(err, zk.ErrNoNode) || first < 0 {
				return nil, err
			}
			gone[part[first]] = true
			part = slices.Delete(part, first, first+1)
		}
	}
	return gone, nil
}

// remove deletes a node, and reports whether it was there, or after an error may have been.
func (d *Driver) remove(ctx context.Context, s *session, path string) (bool, error) {
	_, err := write(ctx, s, func(c *zk.Conn) (none, error) { return none{}, c.Delete(path, -1) })
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return !errors.Is(err, errExpired), err // which was not sent
}

// withdraw deletes all claims of a token that the session can see, and reports whether there were
// any, or after an error may have been. Nodes of other programs among them do not keep it from that.
func (d *Driver) withdraw(ctx context.Context, s *session, l lock, token string) (bool, error) {
	children, err := d.children(ctx, s, l.dir)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return false, err
	}
	was := false
	for _, node := range children.nodes {
		if c, ok := parse(node); !ok || c.token != token {
			continue
		}
		there, err := d.remove(ctx, s, l.dir+"/"+node)
		was = was || there
		if err != nil {
			return was, err
		}
	}
	return was, nil
}

// build makes the node of a lock, and those above it. The node goes by itself, some time after the
// last claim.
func (d *Driver) build(ctx context.Context, s *session, l lock, limit int64) error {
	container := func(c *zk.Conn) (none, error) {
		var data []byte
		if l.kind == driver.Semaphore {
			data = strconv.AppendInt(nil, limit, 10)
		}
		_, err := c.CreateContainer(l.dir, data, zk.FlagContainer, d.acl())
		return none{}, err
	}
	_, err := write(ctx, s, container)
	if errors.Is(err, zk.ErrNoNode) {
		if err = d.lay(ctx, s, l.dir[:strings.LastIndexByte(l.dir, '/')]); err == nil {
			_, err = write(ctx, s, container)
		}
	}
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// lay makes a node that stays, and those above it.
func (d *Driver) lay(ctx context.Context, s *session, path string) error {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		_, err := write(ctx, s, func(c *zk.Conn) (string, error) { return c.Create(path[:i], nil, zk.FlagPersistent, d.acl()) })
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// relimit sets the limit of a semaphore that has no claims, and reports false if it has.
//
// The limit is what the node of the lock says. The node can be replaced only while nothing is in
// it. So claims that see each other have one limit in common.
func (d *Driver) relimit(ctx context.Context, s *session, l lock, limit int64) (bool, error) {
	_, err := d.remove(ctx, s, l.dir)
	if errors.Is(err, zk.ErrNotEmpty) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, d.build(ctx, s, l, limit)
}

// bury leaves a tombstone for a token, for a minute or as long as the session lasts.
//
// It need not last longer: what the session was asked for before comes before the tombstone, or
// never. Requests of a session are carried out in the order in which they were sent. Those of a
// connection that was given up are refused once there is another one.
func (d *Driver) bury(ctx context.Context, s *session, l lock, token string) error {
	grave := d.grave(l, token)
	create := func(c *zk.Conn) (string, error) { return c.Create(grave, nil, zk.FlagEphemeral, d.acl()) }
	_, err := write(ctx, s, create)
	if errors.Is(err, zk.ErrNoNode) {
		if err = d.lay(ctx, s, d.root+"/dead"); err == nil {
			_, err = write(ctx, s, create)
		}
	}
	if errors.Is(err, zk.ErrNodeExists) { // such as by a request whose answer was lost
		err = nil
	}
	if err == nil {
		d.later(s, retention, func(ctx context.Context) error {
			_, err := d.remove(ctx, s, grave)
			return err
		})
	}
	return err
}
