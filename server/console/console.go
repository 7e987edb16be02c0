// Package console holds the page by which people look at a server with a browser, as the module console has made it from its
// sources: files of dist, each compressed. They're the same for everybody and hold nothing of the server's, so that no credential
// is needed for them. What the page shows it asks of the API, as its user. The package starts nothing, and nothing is read before
// somebody asks for it.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

// Path is where the page is. Its files are below it.
const Path = "/console"

// page is the file that the others belong to. It alone has no hash of its content in its name.
const page = "index.html"

//go:embed dist
var dist embed.FS

// policy lets the page load its own files and ask its own server, and nothing else: no script or style inside of a page, no page
// around it. Images in its address are those of the stylesheet.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// types are what the files of the page are, by the ends of their names.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".txt":  "text/plain; charset=utf-8",
}

// Has tells whether a path is the console's: the page's, or one below it, where there may be a file or none.
func Has(path string) bool { return path == Path || strings.HasPrefix(path, Path+"/") }

// Serve answers GET and HEAD for one of the console's paths, or for the page at another path. It reports whether there is
// such a file; if there's none, nothing was written.
func Serve(w http.ResponseWriter, r *http.Request) (found bool, err error) {
	name := page
	if Has(r.URL.Path) {
		if below := strings.TrimPrefix(r.URL.Path[len(Path):], "/"); below != "" {
			name = below
		}
	}
	media := types[path.Ext(name)]
	packed := file(name)
	if media == "" || packed == nil {
		return false, nil
	}
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Add("Vary", "Accept-Encoding")
	etag := weakTag(name, packed)
	h.Set("ETag", etag)
	if name == page {
		h.Set("Cache-Control", "no-cache") // so that a new version's page is seen at once
	} else {
		h.Set("Cache-Control", "public, max-age=31536000, immutable") // its name changes with its content
	}
	if tagged(r.Header.Get("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return true, nil
	}
	return true, write(w, r, packed)
}

// kept are the files that somebody has asked for, by name. Package embed copies one at each reading, and a client that doesn't take what
// it has asked for would hold its copy.
var kept sync.Map

// file returns a file as it's stored, or nil.
func file(name string) []byte {
	if known, ok := kept.Load(name); ok {
		return known.([]byte)
	}
	packed, err := dist.ReadFile("dist/" + name + ".gz")
	if err != nil {
		return nil
	}
	known, _ := kept.LoadOrStore(name, packed)
	return known.([]byte)
}

// write sends a file as it's stored, or inflated to a client that doesn't take it compressed.
func write(w http.ResponseWriter, r *http.Request, packed []byte) error {
	if takesGzip(r.Header.Values("Accept-Encoding")) {
		w.Header().Set("Content-Encoding", "gzip")
		if r.Method == http.MethodHead {
			return nil
		}
		_, err := w.Write(packed)
		return err
	}
	if r.Method == http.MethodHead {
		return nil
	}
	content, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	return err
}

// weakTag names the content of a file in any encoding. That of the others is in their names.
func weakTag(name string, packed []byte) string {
	if name == page {
		sum := sha256.Sum256(packed)
		name = hex.EncodeToString(sum[:8])
	}
	return `W/"` + name + `"`
}

// tagged tells whether a client has what etag names.
func tagged(ifNoneMatch, etag string) bool {
	for tag := range strings.SplitSeq(ifNoneMatch, ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(etag, "W/") {
			return true
		}
	}
	return false
}

// takesGzip tells whether a client takes gzip, by its headers Accept-Encoding.
func takesGzip(headers []string) bool {
	for clause := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		coding, quality, _ := strings.Cut(clause, ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(quality), "q="), 64)
			return err != nil || q > 0 // without a quality it's 1
		}
	}
	return false
}
