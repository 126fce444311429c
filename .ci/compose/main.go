// Command compose checks a docker-compose.yml where there is no docker compose
// to ask: that it is YAML without doubled keys, that every image is pinned to a
// version, that every port is open on loopback only and that every file it mounts
// is there.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// file is the part of a compose file that this project uses. A key that is not
// here is an error: as a rule it is misspelt.
type file struct {
	Services map[string]service `yaml:"services"`
	Volumes  map[string]any     `yaml:"volumes"`

	dir string // where the file is, which paths in it begin at
}

type service struct {
	Image       string            `yaml:"image"`
	Build       *build            `yaml:"build"`
	Profiles    []string          `yaml:"profiles"`
	NetworkMode string            `yaml:"network_mode"`
	Restart     string            `yaml:"restart"`
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	Ports       []string          `yaml:"ports"`
	Volumes     []string          `yaml:"volumes"`
	ExtraHosts  []string          `yaml:"extra_hosts"`
	DependsOn   map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
	Healthcheck *struct {
		Test     []string `yaml:"test"`
		Interval string   `yaml:"interval"`
		Timeout  string   `yaml:"timeout"`
		Retries  int      `yaml:"retries"`
	} `yaml:"healthcheck"`
}

// build is how an image is built, in place of one that is fetched.
type build struct {
	Context    string            `yaml:"context"`
	Dockerfile string            `yaml:"dockerfile"`
	Args       map[string]string `yaml:"args"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: compose FILE")
		os.Exit(2)
	}
	faults, err := check(os.Args[1])
	if err != nil {
		faults = []string{err.Error()}
	}
	for _, fault := range faults {
		fmt.Fprintf(os.Stderr, "%s: %s\n", os.Args[1], fault)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

// check lists what is wrong with the file.
func check(path string) ([]string, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // only read
	compose := file{dir: filepath.Dir(path)}
	decoder := yaml.NewDecoder(in)
	decoder.KnownFields(true)
	if err := decoder.Decode(&compose); err != nil {
		return nil, err
	}
	var faults []string
	if len(compose.Services) == 0 {
		faults = append(faults, "no services")
	}
	for name, s := range compose.Services {
		faults = append(faults, s.faults(name, compose)...)
	}
	slices.Sort(faults)
	return faults, nil
}

func (s service) faults(name string, in file) []string {
	var faults []string
	fault := func(format string, args ...any) {
		faults = append(faults, "service "+name+": "+fmt.Sprintf(format, args...))
	}
	if s.Build != nil {
		if _, err := os.Stat(filepath.Join(in.dir, s.Build.Context, s.Build.Dockerfile)); err != nil {
			fault("is built by what is not there: %v", err)
		}
	} else if _, tag, ok := strings.Cut(s.Image, ":"); !ok || tag == "" || tag == "latest" {
		fault("image %q is not pinned to a version", s.Image)
	}
	for _, port := range s.Ports {
		if !strings.HasPrefix(port, "127.0.0.1:") || strings.Count(port, ":") != 2 {
			fault("port %q is not on 127.0.0.1", port)
		}
	}
	for _, mount := range s.Volumes {
		volume, _, _ := strings.Cut(mount, ":")
		if strings.ContainsAny(volume, "./") {
			// Docker would make an empty directory of what is not there.
			if _, err := os.Stat(filepath.Join(in.dir, volume)); err != nil {
				fault("mounts what is not there: %v", err)
			}
		} else if _, known := in.Volumes[volume]; !known {
			fault("volume %q is not declared", volume)
		}
	}
	for other, how := range s.DependsOn {
		needed, known := in.Services[other]
		if !known {
			fault("depends on %q, which is not there", other)
		}
		if how.Condition == "service_healthy" && needed.Healthcheck == nil {
			fault("waits for %q to be healthy, which has no health check", other)
		}
	}
	return faults
}
