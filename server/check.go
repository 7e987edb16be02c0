package server

import (
	"context"
	"log/slog"

	"github.com/apiserver-lite/apiserver-lite/access"
)

// Check refuses what can't be used of the settings and of the files that they name, as Start does before it takes the port. It's for
// before Start, for who has something to wait for first.
func (s *Server) Check() error {
	defer func(log *slog.Logger) { s.Log = log }(s.Log)
	s.Log = slog.New(slog.DiscardHandler) // what there is to say of it Start says
	g, err := s.read()
	if err != nil {
		return err
	}
	defer g.keys.Close()
	defer g.may.Close()
	a, err := access.New(context.Background(), s.Access, access.Wiring{Admin: g.tokens.Has, Open: g.may.Open, Ways: g.ways, Log: s.Log})
	if err != nil {
		return err
	}
	a.Close()
	return nil
}
