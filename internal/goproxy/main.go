// Command goproxy writes the Go modules of a commit as a module proxy has them (go.dev/ref/mod), so
// that a program outside of the tree can require them:
//
//	goproxy FOLDER [COMMIT]
//	GOPROXY=file:///FOLDER,https://proxy.golang.org GONOSUMDB='*' go get github.com/netcraq/netcraq/client
//
// The same commit gives the same bytes.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/netcraq/netcraq/api/buildinfo"
)

// root is the path of the tree's module.
const root = "github.com/netcraq/netcraq"

// published are the folders of the modules that programs may require.
var published = []string{"", "api", "client", "client/etcd"}

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: goproxy FOLDER [COMMIT]")
		os.Exit(2)
	}
	commit := "HEAD"
	if len(os.Args) == 3 {
		commit = os.Args[2]
	}
	for _, folder := range published {
		if err := publish(os.Args[1], folder, commit, "v"+buildinfo.Version()); err != nil {
			fmt.Fprintf(os.Stderr, "goproxy: %s: %v\n", filepath.Join(root, folder), err)
			os.Exit(1)
		}
	}
}

// publish writes one module.
func publish(proxy, folder, commit, version string) error {
	m := module.Version{Path: strings.TrimSuffix(root+"/"+folder, "/"), Version: version}
	mod, err := git("show", commit+":"+filepath.Join(folder, "go.mod"))
	if err != nil {
		return err
	}
	date, err := git("log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", commit)
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]string{"Version": version, "Time": strings.TrimSpace(string(date))})
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	if err := zip.CreateFromVCS(&packed, m, ".", commit, folder); err != nil {
		return fmt.Errorf("packing it: %w", err)
	}
	there := filepath.Join(proxy, filepath.FromSlash(m.Path), "@v")
	if err := os.MkdirAll(there, 0o755); err != nil {
		return err
	}
	for name, content := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info,
		version + ".mod": mod, version + ".zip": packed.Bytes()} {
		if err := os.WriteFile(filepath.Join(there, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func git(args ...string) ([]byte, error) {
	cmd := exec.Command("git", args...)
	cmd.Env = append(os.Environ(), "TZ=UTC")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
