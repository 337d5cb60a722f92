package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/executor/dispatch"
)

func TestSetUpWebhook(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"key": 0o600, "open": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("whsec_bm90IGEgcmVhbCBrZXksIGJ1dCBsb25nIGVub3VnaA==\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	url, key := "URL=https://h.example/x", "SECRET_FILE="+dir+"/key"
	for _, test := range []struct{ settings, want string }{
		{"", ""},
		{url + " " + key, ""},
		{"URL=http://10.0.0.1/x PRIVATE=10.0.0.0/8 " + key, ""},
		{url, "must both be set"},
		{key, "must both be set"},
		{"PRIVATE=10.0.0.0/8", "must both be set"},
		{"URL=http://h.example " + key, "one of http"},
		{url + " PRIVATE=169.254.0.0/16 " + key, "never be admitted"},
		{url + " SECRET_FILE=" + dir + "/open", "others than its owner"},
		{url + " SECRET_FILE=" + dir + "/nosuch", "nosuch"},
	} {
		var environ []string
		for _, v := range strings.Fields(test.settings) {
			environ = append(environ, strings.Replace("SALLYPORT_APPROVAL_WEBHOOK_"+v, "_URL=", "=", 1))
		}
		s, err := parseSettings(environ)
		if err != nil {
			t.Fatal(err)
		}
		var c dispatch.Config
		err = setUpWebhook(s, &c)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.settings, err, test.want)
		}
		if set := strings.Contains(test.settings, "URL") && err == nil; (c.Announce != nil) != set || (len(c.Redact) == 1) != set {
			t.Errorf("%s: %+v", test.settings, c)
		}
	}
}
