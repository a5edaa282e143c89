// Command goproxy writes a commit's Go modules in the layout of a module proxy (go.dev/ref/mod), so
// that programs outside of the tree can require them:
//
//	goproxy FOLDER [COMMIT]
//	GOPROXY=file:///FOLDER,https://proxy.golang.org GONOSUMDB='*' go get github.com/netcraq/netcraq/client
//
// The same commit gives the same bytes.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/netcraq/netcraq/api/buildinfo"
	"github.com/netcraq/netcraq/internal/modproxy"
)

// root is the path of the tree's module.
const root = "github.com/netcraq/netcraq"

// published lists the folders of the modules that programs may require.
var published = []string{"", "api", "client", "client/etcd", installed}

// installed is the folder of the module whose command go install builds. RELEASING.md says how to
// tag a commit whose go.mod equals the one that is published here.
const installed = "switch"

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
	text, err := git("log", "-1", "--format=%cI", commit)
	if err != nil {
		return err
	}
	date, err := time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	if err := zip.CreateFromVCS(&packed, m, ".", commit, folder); err != nil {
		return fmt.Errorf("packing it: %w", err)
	}
	content := packed.Bytes()
	if folder == installed {
		if mod, content, err = modproxy.Installable(m, mod, content); err != nil {
			return err
		}
	}
	return modproxy.Write(proxy, m, date.UTC(), mod, content)
}

func git(args ...string) ([]byte, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
