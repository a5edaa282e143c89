// Package page is the web page that the controller serves at its admin address. It has a drawing of
// switches, links and chains with their rates, plots over time, the placed keys with their heat,
// and live events. It is plain HTML, CSS and JavaScript, embedded here. It calls only the admin API
// of the same address, and changes nothing.
package page

import (
	"embed"
	"net/http"
)

//go:embed index.html *.js page.css
var files embed.FS

// policy lets the page load only its own files, and connect only to its own server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handle adds the page at /.
func Handle(mux *http.ServeMux) {
	serve := func(pattern, name string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Security-Policy", policy)
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.Header().Set("Cache-Control", "no-cache") // another version of the controller may have another page
			http.ServeFileFS(w, r, files, name)
		})
	}
	serve("GET /{$}", "index.html")
	for _, path := range Paths() {
		serve("GET "+path, path[1:])
	}
}

// Paths returns the paths of the files that the page loads. The files are the same for everybody,
// so they need no token.
func Paths() []string {
	return []string{"/page.css", "/page.js", "/dom.js", "/drawing.js", "/keys.js", "/plots.js", "/rates.js"}
}
