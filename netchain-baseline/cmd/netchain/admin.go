package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	netchain "github.com/netcraq/netcraq/netchain-baseline"
)

// admin returns the HTTP handler for the commands of a controller:
//
//	POST /v1/fail/SWITCH
//	POST /v1/recover/SWITCH?by=SWITCH
//	GET  /v1/events
//
// If the controller refuses a command, the status is 409 and the body is a line of text.
func admin(k *netchain.Controller) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, what any, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(what)
	}
	mux.HandleFunc("POST /v1/fail/{switch}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, k.Fail(context.WithoutCancel(r.Context()), r.PathValue("switch")))
	})
	mux.HandleFunc("POST /v1/recover/{switch}", func(w http.ResponseWriter, r *http.Request) {
		done, err := k.Recover(r.Context(), r.PathValue("switch"), r.URL.Query().Get("by"))
		answer(w, done, err)
	})
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) { answer(w, k.Events(), nil) })
	return mux
}

// ask sends a request to the controller's handler and returns the answer.
func (c *common) ask(ctx context.Context, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+c.admin+path, nil)
	if err != nil {
		return nil, err
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the controller (is `netchain control` running?): %w", err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the controller's answer: %w", err)
	}
	if r.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(b)))
	}
	return b, nil
}

func (c *common) fail() *cobra.Command {
	return &cobra.Command{Use: "fail SWITCH", Short: "Route the chain around a failed switch",
		Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			_, err := c.ask(cmd.Context(), http.MethodPost, "/v1/fail/"+url.PathEscape(args[0]))
			return err
		}}
}

func (c *common) recover() *cobra.Command {
	var by string
	cmd := &cobra.Command{Use: "recover SWITCH", Short: "Fill a failed switch or its substitute, and put it into the chain", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := c.ask(cmd.Context(), http.MethodPost, "/v1/recover/"+url.PathEscape(args[0])+"?by="+url.QueryEscape(by))
			if err != nil {
				return err
			}
			var done netchain.Recovery
			if err := json.Unmarshal(b, &done); err != nil {
				return fmt.Errorf("the controller's answer: %w", err)
			}
			fmt.Printf("%s has the place of %s: %d keys in %d virtual groups in %v; writes of a group had to wait for %v at most\n",
				done.By, args[0], done.Keys, done.Groups, done.Took.Round(100_000), done.Stopped.Round(100_000))
			return nil
		}}
	cmd.Flags().StringVar(&by, "by", "", "replacement `SWITCH`, not yet a member (default: the member itself, restarted)")
	return cmd
}

func (c *common) events() *cobra.Command {
	return &cobra.Command{Use: "events", Short: "Print the controller's actions, as JSON", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		b, err := c.ask(cmd.Context(), http.MethodGet, "/v1/events")
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(b)
		return err
	}}
}
