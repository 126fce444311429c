package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/asynq-throttle/asynq-throttle/dashboard"
	"github.com/asynq-throttle/asynq-throttle/internal/loopback"
)

// serving has the flags of serve.
type serving struct {
	listen, asynqURL, asynqmon string
	changes                    bool
}

func (p *program) serve() *cobra.Command {
	var s serving
	cmd := &cobra.Command{
		Use:   "serve THROTTLE",
		Short: "serve the dashboard to the browsers of this machine, until it is interrupted",
		Example: `  asynq-throttle serve smtp             # to look: http://127.0.0.1:8081
  asynq-throttle serve smtp --changes   # also to pause, and to set limits`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeThrottle,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if _, err := p.attach(ctx, args[0]); err != nil {
				return err
			}
			asynqs, closing, err := p.asynqClient(s.asynqURL)
			if err != nil {
				return err
			}
			defer closing()
			pages, err := dashboard.New(args[0], p.client, &dashboard.Options{
				AllowChanges: s.changes, Logger: p.logger(), Asynq: asynqs, Asynqmon: s.asynqmon,
			})
			if err != nil {
				return statusError{misused, err}
			}
			listener, err := loopback.Listen(ctx, s.listen)
			if err != nil {
				return statusError{misused, fmt.Errorf("--listen: %w", err)}
			}
			address, handler := "http://"+listener.Addr().String()+"/", http.Handler(pages)
			if s.changes {
				d := newDoor(pages, listener.Addr())
				address, handler = address+"?ticket="+d.ticket, d
			}
			if err := p.print(struct {
				URL string `json:"url"`
			}{address}, func(g *page) { g.line("%s", address) }); err != nil {
				return err
			}
			return loopback.Serve(ctx, listener, handler)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&s.listen, "listen", "127.0.0.1:8081", "where, on loopback")
	flags.BoolVar(&s.changes, "changes", false,
		"allow pauses and limits to be changed, by the one browser that opens the printed address first")
	flags.StringVar(&s.asynqURL, "asynq", "", "asynq's Redis, if it is another one")
	flags.StringVar(&s.asynqmon, "asynqmon", "", "URL of asynqmon, for links to tasks")
	return cmd
}

// logger logs the changes that the pages make, and the refused requests, to standard error.
func (p *program) logger() *zap.Logger {
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.ISO8601TimeEncoder
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(config), zapcore.Lock(zapcore.AddSync(p.errs)),
		zap.InfoLevel))
}
