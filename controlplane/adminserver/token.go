package adminserver

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// leastToken is the minimum length of a token, in characters: 128 bits in hexadecimal.
const leastToken = 32

// loadToken reads a token from a file, and creates the file if it is missing. It refuses a file
// that other users may read, because they could know the token.
func loadToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeToken(path); err != nil {
			return "", fmt.Errorf("making the admin API's token: %w", err)
		}
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return "", fmt.Errorf("the admin API's token: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", fmt.Errorf("the admin API's token %s: %w", path, err)
	}
	if st.Mode&0o077 != 0 || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return "", fmt.Errorf("the admin API's token %s can be read or was made by others (mode %04o, user %d): remove it, and another one is made", path, st.Mode&0o777, st.Uid)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < leastToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("the admin API's token %s is not one line of %d or more characters: remove the file, and the controller creates another", path, leastToken)
	}
	return token, nil
}

// makeToken creates a file with a new token, atomically. If another process creates the file first,
// that file is kept.
func makeToken(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".token-*") // CreateTemp gives the file mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(newSecret() + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// newSecret returns 256 random bits in hexadecimal.
func newSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // crypto/rand never fails
	return hex.EncodeToString(b)
}

// same compares secrets in a time that does not depend on their content.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// passes holds temporary secrets: one-time links and browsers' cookies. It stores only their
// hashes.
type passes struct {
	life time.Duration
	most int

	mu    sync.Mutex
	until map[[sha256.Size]byte]time.Time
}

func newPasses(life time.Duration, most int) *passes {
	return &passes{life: life, most: most, until: map[[sha256.Size]byte]time.Time{}}
}

// issue creates a secret. If there are too many secrets, it drops the secret that expires next.
func (p *passes) issue() string {
	secret := newSecret()
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	var first [sha256.Size]byte
	for sum, until := range p.until {
		if until.Before(now) {
			delete(p.until, sum)
		} else if when, ok := p.until[first]; !ok || until.Before(when) {
			first = sum
		}
	}
	if len(p.until) >= p.most {
		delete(p.until, first)
	}
	p.until[sha256.Sum256([]byte(secret))] = now.Add(p.life)
	return secret
}

// holds reports whether a secret is valid. If use is set, the secret becomes invalid.
func (p *passes) holds(secret string, use bool) bool {
	sum := sha256.Sum256([]byte(secret)) // the timing of the lookup reveals nothing about the secret
	p.mu.Lock()
	defer p.mu.Unlock()
	until, ok := p.until[sum]
	if ok && use {
		delete(p.until, sum)
	}
	return ok && time.Now().Before(until)
}
