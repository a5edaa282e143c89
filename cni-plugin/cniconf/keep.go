package cniconf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long the folders must be unchanged before they are read. By then, files that
	// are written in place are complete.
	settle = 200 * time.Millisecond
	// lookAgain is the interval between checks while no change is reported.
	lookAgain = time.Minute
	// fightPause is how long keeper makes no changes if another program keeps undoing them.
	fightPause = time.Minute
	fightAfter = 5 // number of changes within fightPause after which keeper pauses
)

// ErrFolderGone means that a folder was removed and its path still leads to the removed folder, as
// a container's mount does. Keep returns it. The process must be restarted to see a new folder.
var ErrFolderGone = errors.New("the folder was removed from the node: this process has to be started again to see a new one")

// keeper repeats its work whenever something changes in its folders.
type keeper struct {
	folders []string
	// work corrects the content of the folders. file is the name to log if there was a change.
	work   func() (file string, changed bool, err error)
	done   string             // log message after a change
	failed func(error) string // returns the log message for an error of work
	fight  string             // log message if another program keeps undoing the work
}

// Keep repeats Apply and installs the plugins, whenever a file changes, until ctx ends. This is
// needed because the other plugin may come later, and may rewrite its file.
func (c Chained) Keep(ctx context.Context, plugins Plugins, log *slog.Logger) error {
	return keeper{folders: plugins.folders(c.Dir), done: "netcraq-cni is behind the plugins of the container runtime's network",
		work: func() (string, bool, error) {
			_, installErr := plugins.Install()
			file, changed, err := c.Apply()
			return file, changed, errors.Join(installErr, err)
		},
		failed: func(err error) string {
			if errors.Is(err, ErrNoList) {
				return "waiting for the other plugin's configuration"
			}
			return "the switch's ports are not at new pods' interfaces"
		},
		fight: "somebody else writes the list again and again without netcraq-cni, so pods may get no port: " +
			"have it leave the folder to others (Cilium: cni.exclusive=false)"}.run(ctx, log)
}

// Keep rewrites the list and installs the plugins again whenever another program removes or changes
// them, until ctx ends. If dir is "", it maintains only the plugins.
func (c Config) Keep(ctx context.Context, dir string, plugins Plugins, log *slog.Logger) error {
	return keeper{folders: plugins.folders(dir), done: "the container runtime's network is this one",
		work: func() (file string, changed bool, err error) {
			installed, installErr := plugins.Install()
			if file = File; dir != "" && beingWritten(filepath.Join(dir, file)) {
				err = errBeingWritten // the end of the writing will cause another event
			} else if dir != "" {
				changed, err = c.Write(dir)
			}
			return file, changed || installed, errors.Join(installErr, err)
		},
		failed: func(error) string { return "the container runtime may not find this network" },
		fight: "somebody removes the list of plugins or the plugins again and again, so pods may get no network: " +
			"have it leave these folders alone"}.run(ctx, log)
}

var errBeingWritten = errors.New("somebody else is writing it")

// beingWritten reports whether a file may be only half written. That is so if it is not valid JSON
// and was changed a moment ago.
func beingWritten(path string) bool {
	info, err := os.Stat(path)
	if err != nil || time.Since(info.ModTime()) > settle {
		return false
	}
	text, err := os.ReadFile(path)
	return err == nil && !json.Valid(text)
}

// run repeats work until ctx ends. It returns an error if the folders cannot be watched, or if a
// folder was removed.
func (k keeper) run(ctx context.Context, log *slog.Logger) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching %s: %w", k.folders, err)
	}
	defer w.Close()
	var writes []time.Time
	said := ""
	for next := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-w.Events:
			if len(writes) < fightAfter {
				next = time.Now().Add(settle)
			}
			continue
		case err := <-w.Errors:
			log.Warn("watching the plugins' configurations", "folders", k.folders, "err", err)
			next = time.Now().Add(settle)
			continue
		case <-time.After(time.Until(next)):
		}
		next = time.Now().Add(lookAgain)
		for _, dir := range k.folders { // every time, because the watch of a folder ends when the folder is removed
			if err := watch(w, dir); err != nil {
				return fmt.Errorf("watching %s: %w", dir, err)
			}
		}
		file, changed, err := k.work()
		text := ""
		switch {
		case err != nil:
			text = k.failed(err)
			if text+err.Error() != said {
				log.Warn(text, "folders", k.folders, "err", err)
			}
			text += err.Error()
		case changed:
			log.Info(k.done, "file", file)
		}
		said = text
		if changed {
			writes = append(writes, time.Now())
		}
		for len(writes) > 0 && time.Since(writes[0]) > fightPause {
			writes = writes[1:]
		}
		if len(writes) >= fightAfter {
			log.Warn(k.fight, "file", file)
			next = time.Now().Add(fightPause)
		}
	}
}

// watch makes a folder if it does not exist, and watches it.
func watch(w *fsnotify.Watcher, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Nlink == 0 {
		return ErrFolderGone
	}
	return w.Add(dir)
}
