// Package page is the web page that the controller serves at its admin address: the chains, the
// placed keys with their heat, hit rate, latency, and events, live. It is plain HTML, CSS and
// JavaScript, embedded here; it asks the admin API of the same address and nobody else, and changes
// nothing.
package page

import (
	"embed"
	"net/http"
)

//go:embed index.html page.js page.css
var files embed.FS

// policy lets the page load its own files and ask its own server, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handle adds the page at /.
func Handle(mux *http.ServeMux) {
	serve := func(pattern, name string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Security-Policy", policy)
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.Header().Set("Cache-Control", "no-cache") // the next version of the controller has another page
			http.ServeFileFS(w, r, files, name)
		})
	}
	serve("GET /{$}", "index.html")
	serve("GET /page.js", "page.js")
	serve("GET /page.css", "page.css")
}
