package gate

import (
	"fmt"
	"sync/atomic"

	"sallyport/firewall/allowlist"
	"sallyport/gate/settings"
	"sallyport/gate/watch"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/resolve"
)

// files are all that the gate reads anew at a reload: the allowlist, and what the
// settings name beside it.
type files struct {
	*watch.Files
	settings settings.Settings
	resolver *resolve.Client
	proxies  atomic.Pointer[map[string]reach.Proxy]
}

// newFiles are those of the settings; nothing is read before load.
func newFiles(s settings.Settings) (*files, error) {
	resolver, err := s.Resolver()
	if err != nil {
		return nil, err
	}
	beside := []string{s.ResolverCA}
	for _, c := range s.ProxyCredentials {
		beside = append(beside, c.Value)
	}
	return &files{Files: &watch.Files{Path: s.Allowlist, Beside: beside}, settings: s, resolver: resolver}, nil
}

// load reads all of them and puts those beside the allowlist to use, unless one of
// them is wrong: then it changes nothing.
func (f *files) load() (*allowlist.File, error) {
	file, err := f.Files.Load()
	if err != nil {
		return nil, err
	}
	proxies, err := f.settings.ProxiesByName()
	if err != nil {
		return nil, err
	}
	for _, via := range file.Vias() {
		if _, ok := proxies[via]; !ok {
			return nil, fmt.Errorf("the allowlist has \"via: %s\", and SALLYPORT_PROXIES has no proxy of that name", via)
		}
	}
	roots, err := f.settings.Authorities()
	if err != nil {
		return nil, err
	}
	f.proxies.Store(&proxies)
	if roots != nil {
		f.resolver.SetRoots(roots)
	}
	return file.Refuse(f.settings.Refused()), nil
}

// proxy finds a proxy with its credentials as they were last read.
func (f *files) proxy(name string) (reach.Proxy, bool) {
	proxies := f.proxies.Load()
	if proxies == nil {
		return reach.Proxy{}, false
	}
	p, ok := (*proxies)[name]
	return p, ok
}
