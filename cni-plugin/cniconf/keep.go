package cniconf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long a folder has to be quiet before it is looked at: files that are written in
	// place are whole then.
	settle = 200 * time.Millisecond
	// lookAgain is the time between two looks where nothing is heard of.
	lookAgain = time.Minute
	// fightPause is how long the file is left to somebody who writes it again and again without the
	// entry.
	fightPause = time.Minute
	fightAfter = 5 // writes within fightPause
)

// Keep has Apply's work stay as it is until ctx ends: the other plugin may come later, and may
// write its file again.
func (c Chained) Keep(ctx context.Context, log *slog.Logger) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("the folder of plugins' configurations: %w", err)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching %s: %w", c.Dir, err)
	}
	defer w.Close()
	if err := w.Add(c.Dir); err != nil {
		return fmt.Errorf("watching %s: %w", c.Dir, err)
	}
	var writes []time.Time
	said := ""
	for wait := time.Duration(0); ; {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-w.Events:
			timer.Stop()
			if len(writes) < fightAfter {
				wait = settle
			}
			continue
		case err := <-w.Errors:
			timer.Stop()
			log.Warn("watching the plugins' configurations", "folder", c.Dir, "err", err)
			wait = settle
			continue
		case <-timer.C:
		}
		wait = lookAgain
		file, changed, err := c.Apply()
		text := ""
		switch {
		case errors.Is(err, ErrNoList):
			text = "waiting for the other plugin's configuration"
		case err != nil:
			text = "the switch's ports are not at new pods' interfaces"
		case changed:
			log.Info("netcraq-cni is behind the plugins of the container runtime's network", "file", file)
		}
		if err != nil && text+err.Error() != said {
			log.Warn(text, "folder", c.Dir, "err", err)
		}
		said = ""
		if err != nil {
			said = text + err.Error()
		}
		if changed {
			writes = append(writes, time.Now())
		}
		for len(writes) > 0 && time.Since(writes[0]) > fightPause {
			writes = writes[1:]
		}
		if len(writes) >= fightAfter {
			log.Warn("somebody else writes the list again and again without netcraq-cni, so pods may get no port: "+
				"have it leave the folder to others (Cilium: cni.exclusive=false)", "file", file)
			wait = fightPause
		}
	}
}
