package site

import (
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
)

// World is the hosts of a crawl: the bundled hosts, which keep a log of their requests, or real hosts, for which the
// client keeps it.
type World struct {
	Resolver   *fetch.Resolver
	Web        *Web       // nil for the real one
	Accesses   *AccessLog // what was requested
	ServersLog bool       // the servers keep it
}

// Open starts the bundled hosts, or returns a world that stands for the real ones. The end of the program closes them.
func Open(p *rig.Program, bundled bool) (*World, error) {
	if !bundled {
		return &World{Resolver: fetch.NewResolver(), Accesses: new(AccessLog)}, nil
	}
	inside, err := Start(Bundled(), new(AccessLog))
	if err != nil {
		return nil, err
	}
	p.AtClose(inside.Close)
	return inside.World(true), nil
}

// World returns the hosts of a web. With serversLog, the hosts keep the log; otherwise the client does, as for real
// hosts.
func (w *Web) World(serversLog bool) *World {
	accesses := w.Log
	if !serversLog {
		accesses = new(AccessLog)
	}
	return &World{Resolver: w.resolver(), Web: w, Accesses: accesses, ServersLog: serversLog}
}
