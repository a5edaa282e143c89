package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// store keeps the agent's records in files, one for each attachment, named by hostName. A reboot
// should empty its folder (for example in /run), because a reboot also removes the interfaces. So
// store does not sync its files to disk. It writes complete files and renames them into place.
type store struct{ dir string }

const recordSuffix = ".json"

// recordVersion is the version of the record format. It increases only if an older agent would
// misread a record. An added field does not change it. A record without a version has version 1.
const recordVersion = 1

// recordFile is the form in which a record is stored.
type recordFile struct {
	Version int `json:"version"`
	agentapi.Record
}

func openStore(dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the folder for records: %w", err)
	}
	return &store{dir}, nil
}

// Attached reports whether a folder contains records, which means that pods depend on the agent.
func Attached(dir string) bool {
	files, err := (&store{dir}).files()
	return err == nil && len(files) > 0
}

// files returns the names of all record files.
func (s *store) files() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(s.dir, "*"+recordSuffix))
	if err != nil {
		return nil, fmt.Errorf("listing records: %w", err)
	}
	return files, nil
}

// all reads every record. If some files are unreadable, it returns the other records, and an error
// that names the unreadable files.
func (s *store) all() (map[string]*agentapi.Record, error) {
	files, err := s.files()
	if err != nil {
		return nil, err
	}
	records := map[string]*agentapi.Record{}
	var errs []error
	for _, f := range files {
		var file recordFile
		r := &file.Record
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &file)
		}
		if err == nil && file.Version > recordVersion {
			err = fmt.Errorf("it is of version %d, and this agent reads version %d: start the agent that has written it, or one after",
				file.Version, recordVersion)
		}
		if name := strings.TrimSuffix(filepath.Base(f), recordSuffix); err == nil && name != hostName(r.Attachment) {
			err = fmt.Errorf("it is about %s", r.Attachment)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the record %s: %w", f, err))
			continue
		}
		records[hostName(r.Attachment)] = r
	}
	return records, errors.Join(errs...)
}

// has reports whether an attachment has a record file, whatever it contains.
func (s *store) has(a agentapi.Attachment) bool {
	_, err := os.Lstat(s.file(a))
	return !errors.Is(err, os.ErrNotExist)
}

// file returns the path of an attachment's record.
func (s *store) file(a agentapi.Attachment) string {
	return filepath.Join(s.dir, hostName(a)+recordSuffix)
}

func (s *store) put(r *agentapi.Record) error {
	b, err := json.Marshal(recordFile{recordVersion, *r})
	if err == nil {
		err = replaceFile(s.file(r.Attachment), b)
	}
	if err != nil {
		return fmt.Errorf("writing the record of %s: %w", r.Attachment, err)
	}
	return nil
}

// replaceFile replaces a file atomically.
func replaceFile(path string, b []byte) error {
	return errors.Join(os.WriteFile(path+".new", b, 0o600), os.Rename(path+".new", path))
}

// lastPortFile is the path of a file next to the folder. The file has the port that was assigned
// last, in decimal. An agent reads it when it starts, so that a restart does not make it reuse a
// port soon.
func (s *store) lastPortFile() string { return filepath.Clean(s.dir) + ".last-port" }

// lastPort returns the port that was assigned last, or 0 if there is none.
func (s *store) lastPort() (uint32, error) {
	b, err := os.ReadFile(s.lastPortFile())
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	var n uint64
	if err == nil {
		n, err = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32)
	}
	if err != nil {
		return 0, fmt.Errorf("reading which port was given last: %w", err)
	}
	return uint32(n), nil
}

func (s *store) putLastPort(p uint32) error {
	if err := replaceFile(s.lastPortFile(), strconv.AppendUint(nil, uint64(p), 10)); err != nil {
		return fmt.Errorf("writing which port was given last: %w", err)
	}
	return nil
}

func (s *store) remove(a agentapi.Attachment) error {
	if err := os.Remove(s.file(a)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing a record: %w", err)
	}
	return nil
}
