package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// packageName is the one package of each registry.
const packageName = "hello-sallyport"

// newNpmSite serves an npm registry: the package's document, and its tarball.
func newNpmSite(now time.Time) (http.Handler, error) {
	manifest := map[string]any{"name": packageName, "version": "1.0.0", "description": "Hello from npm.", "main": "package.json"}
	packed, err := json.Marshal(manifest)
	if err != nil {
		return nil, fmt.Errorf("npm site: %w", err)
	}
	tarball, err := tarGz(now, "package/package.json", string(packed))
	if err != nil {
		return nil, fmt.Errorf("npm site: %w", err)
	}
	digest := sha512.Sum512(tarball)
	const path = "/" + packageName + "/-/" + packageName + "-1.0.0.tgz"
	manifest["dist"] = map[string]string{
		"tarball":   "https://npm.docs.example" + path,
		"integrity": "sha512-" + base64.StdEncoding.EncodeToString(digest[:]),
	}
	document, err := json.Marshal(map[string]any{
		"name": packageName, "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": manifest},
	})
	if err != nil {
		return nil, fmt.Errorf("npm site: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /"+packageName, content(now, "application/json", document))
	mux.HandleFunc("GET "+path, content(now, "application/octet-stream", tarball))
	return mux, nil
}

// newPyPISite serves a Python package index (PEP 503) and its one wheel.
func newPyPISite(now time.Time) (http.Handler, error) {
	const name = "hello_sallyport-1.0-py3-none-any.whl"
	packed, err := wheel()
	if err != nil {
		return nil, fmt.Errorf("pypi site: %w", err)
	}
	page := fmt.Appendf(nil, "<!DOCTYPE html><a href=\"/files/%s#sha256=%x\">%[1]s</a>\n", name, sha256.Sum256(packed))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /simple/"+packageName+"/", content(now, "text/html", page))
	mux.HandleFunc("GET /files/"+name, content(now, "application/octet-stream", packed))
	return mux, nil
}

// wheel is a Python package of one module (PEP 427).
func wheel() ([]byte, error) {
	const info = "hello_sallyport-1.0.dist-info/"
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, file := range [][2]string{
		{"hello_sallyport.py", "greeting = 'Hello from PyPI.'\n"},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + packageName + "\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: internet\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", "hello_sallyport.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	} {
		w, err := z.Create(file[0])
		if err != nil {
			return nil, fmt.Errorf("pack a wheel: %w", err)
		}
		if _, err := w.Write([]byte(file[1])); err != nil {
			return nil, fmt.Errorf("pack a wheel: %w", err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("pack a wheel: %w", err)
	}
	return b.Bytes(), nil
}

// content serves bytes that do not change.
func content(now time.Time, kind string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		http.ServeContent(w, r, "", now, bytes.NewReader(body))
	}
}
