package settings_test

import (
	"os"
	"path/filepath"
	"testing"

	"sallyport/gate/settings"
)

func TestProxySettings(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "credentials")
	if err := os.WriteFile(file, []byte("user:pass word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(dir, "none")
	if err := os.WriteFile(none, []byte("token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(environ ...string) (settings.Settings, error) {
		s, err := settings.Parse(environ)
		if err == nil {
			_, err = s.ProxiesByName()
		}
		return s, err
	}
	s, err := read("SALLYPORT_PROXIES=corp=10.0.0.9:3128,lab=[2001:db8::1]:8080", "SALLYPORT_PROXY_CREDENTIALS=corp="+file, "SALLYPORT_PROXY_BY_ADDRESS=lab")
	if err != nil {
		t.Fatal(err)
	}
	proxies, _ := s.ProxiesByName()
	if p := proxies["corp"]; p.Addr.String() != "10.0.0.9:3128" || p.Credentials != "user:pass word" || p.ByAddress {
		t.Errorf("corp: %+v", p)
	}
	if p := proxies["lab"]; p.Addr.String() != "[2001:db8::1]:8080" || p.Credentials != "" || !p.ByAddress {
		t.Errorf("lab: %+v", p)
	}
	const corp = "SALLYPORT_PROXIES=corp=10.0.0.9:3128"
	for _, bad := range [][]string{
		{"SALLYPORT_PROXIES=10.0.0.9:3128"}, {"SALLYPORT_PROXIES=corp=proxy.example:3128"}, {"SALLYPORT_PROXIES=corp=10.0.0.9"},
		{"SALLYPORT_PROXIES=corp=10.0.0.9:0"}, {corp + ",corp=10.0.0.8:3128"}, {"SALLYPORT_PROXIES=none=10.0.0.9:3128"},
		{corp, "SALLYPORT_PROXY_CREDENTIALS=lab=" + file}, {corp, "SALLYPORT_PROXY_CREDENTIALS=corp=" + dir + "/absent"},
		{corp, "SALLYPORT_PROXY_CREDENTIALS=corp=" + none}, {corp, "SALLYPORT_PROXY_BY_ADDRESS=lab"},
	} {
		if _, err := read(bad...); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if _, err := (settings.Settings{}).ProxiesByName(); err != nil {
		t.Error(err)
	}
}
