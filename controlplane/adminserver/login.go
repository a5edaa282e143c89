package adminserver

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/netcraq/netcraq/api/admin"
)

// A browser cannot send a token by itself. So a caller that has connected to the socket, or has the
// token, requests a one-time link. The browser that follows the link gets a cookie for reading.
// Browsers send an address's cookies to all ports of that address. If somebody makes the browser
// visit another server on this machine, that server sees the cookie. So the cookie does not allow
// changes.

const (
	linkPath   = "/v1/page"
	linkLife   = 5 * time.Minute
	cookieLife = 12 * time.Hour
)

// cookie returns the cookie's name. The name contains the port, because a browser shares the
// cookies of all controllers on one machine.
func (s *Server) cookie() string {
	port := "none"
	if t, ok := s.tcp.(*net.TCPAddr); ok {
		port = t.AddrPort().String()[len(t.IP.String())+1:]
	}
	return "netcraq_page_" + port
}

// hasCookie reports whether the request has the cookie of a browser that followed a one-time link.
func (s *Server) hasCookie(r *http.Request) bool {
	c, err := r.Cookie(s.cookie())
	return err == nil && s.cookies.holds(c.Value, false)
}

// makeLink answers with a link for one use.
func (s *Server) makeLink(w http.ResponseWriter) {
	if s.tcp == nil {
		fail(w, admin.Errorf(admin.CodeFailedPrecondition, "the page needs an address of TCP: start the controller with --admin %s,%s", admin.SystemSocket, admin.DefaultAddress))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	// encoding fails only if the client has disconnected
	_ = json.NewEncoder(w).Encode(admin.PageLink{URL: "http://" + s.tcp.String() + "/?token=" + s.links.issue(),
		Seconds: int(linkLife / time.Second)})
}

// logIn admits a browser that presents a one-time link. A browser that already has the cookie may
// present a used link again.
func (s *Server) logIn(w http.ResponseWriter, r *http.Request, code string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	if !s.links.holds(code, true) {
		if s.hasCookie(r) {
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
		const text = "This link was used already, or is older than %.0f minutes. netcraq page prints another one."
		w.Header().Set("Connection", "close")
		http.Error(w, fmt.Sprintf(text, linkLife.Minutes()), http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: s.cookie(), Value: s.cookies.issue(), Path: "/",
		MaxAge: int(cookieLife / time.Second), HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
