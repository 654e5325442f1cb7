// Package contexts keeps the named endpoints that coordctl can use without
// flags. `coordd dev` saves one, `coordctl context` edits them.
package contexts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// Context is one cluster as a user reaches it. Empty fields are left to flags,
// environment and defaults.
type Context struct {
	Endpoints  []string `yaml:"endpoints" json:"endpoints"`
	CACert     string   `yaml:"cacert,omitempty" json:"cacert,omitempty"`
	Cert       string   `yaml:"cert,omitempty" json:"cert,omitempty"`
	Key        string   `yaml:"key,omitempty" json:"key,omitempty"`
	ServerName string   `yaml:"server_name,omitempty" json:"serverName,omitempty"`
	AuthFile   string   `yaml:"auth_file,omitempty" json:"authFile,omitempty"`
	// Protected makes destructive commands ask for typed confirmation.
	Protected bool `yaml:"protected,omitempty" json:"protected,omitempty"`
}

// File is the stored set. The zero value is an empty one.
type File struct {
	Current  string             `yaml:"current,omitempty"`
	Contexts map[string]Context `yaml:"contexts,omitempty"`
}

// Path is where the contexts are kept: $COORDCTL_CONFIG, else contexts.yaml in
// coordctl's folder below the user's configuration directory.
func Path() (string, error) {
	if p := os.Getenv("COORDCTL_CONFIG"); p != "" {
		return p, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("contexts: %w; set COORDCTL_CONFIG to a file", err)
	}
	return filepath.Join(dir, "coordctl", "contexts.yaml"), nil
}

// Load reads the set; a missing file is an empty set.
func Load(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &File{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	var f File
	if err := yaml.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("contexts: %s: %w", path, err)
	}
	return &f, nil
}

// Update changes the set under a lock, so that two processes do not lose each
// other's changes, and replaces the file in one step: a crash leaves the old
// or the new one.
func Update(path string, change func(*File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("contexts: lock %s: %w", lock.Name(), err)
	}
	f, err := Load(path)
	if err != nil {
		return err
	}
	if err := change(f); err != nil {
		return err
	}
	return f.save(path)
}

func (f *File) save(path string) error {
	text, err := yaml.Marshal(f)
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".contexts-*")
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(text)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	return nil
}

// Set adds or replaces a context.
func (f *File) Set(name string, c Context) {
	if f.Contexts == nil {
		f.Contexts = map[string]Context{}
	}
	f.Contexts[name] = c
}
