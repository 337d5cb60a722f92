package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"path"
	"time"
)

// aptControl describes the one package of the apt repository.
const aptControl = `Package: hello-sallyport
Version: 1.0
Architecture: all
Maintainer: demo <demo@docs.example>
Description: a package of the demo's internet
`

// newAptSite serves a flat apt repository: "deb [trusted=yes] http://deb.example/ ./".
func newAptSite(now time.Time) (http.Handler, error) {
	control, err := tarGz(now, "./control", aptControl)
	if err != nil {
		return nil, fmt.Errorf("apt site: %w", err)
	}
	data, err := tarGz(now, "./usr/share/hello-sallyport", "Hello from a package.\n")
	if err != nil {
		return nil, fmt.Errorf("apt site: %w", err)
	}
	deb := archive(now, []member{
		{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", control}, {"data.tar.gz", data},
	})
	const name = "hello-sallyport_1.0_all.deb"
	packages := fmt.Appendf(nil, "%sFilename: ./%s\nSize: %d\nSHA256: %x\n\n", aptControl, name, len(deb), sha256.Sum256(deb))
	release := fmt.Appendf(nil, "Origin: demo\nDate: %s\nSHA256:\n %x %d Packages\n",
		now.UTC().Format(time.RFC1123), sha256.Sum256(packages), len(packages))
	files := map[string][]byte{"/" + name: deb, "/Packages": packages, "/Release": release}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, ok := files[path.Clean(r.URL.Path)] // apt asks for /./Packages
		if !ok {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, r.URL.Path, now, bytes.NewReader(content))
	}), nil
}

func tarGz(now time.Time, name, content string) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: now}); err != nil {
		return nil, err
	}
	if _, err := t.Write([]byte(content)); err != nil {
		return nil, err
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// A member is one file of an ar archive.
type member struct {
	name    string
	content []byte
}

// archive is the ar archive that a Debian package is (deb(5)).
func archive(now time.Time, members []member) []byte {
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, m := range members {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", m.name, now.Unix(), 0, 0, 0o100644, len(m.content))
		b.Write(m.content)
		if len(m.content)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}
