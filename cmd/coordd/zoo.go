package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/coordd/coord/internal/zoocfg"
)

// readZoo sets src.zoo if the file is a zoo.cfg.
func (src *source) readZoo() error {
	if !zoocfg.Detect(src.text) {
		return nil
	}
	zoo, err := zoocfg.Read(src.file, src.text, zoocfg.Files{Read: os.ReadFile, Exists: exists})
	src.zoo = zoo
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// applyZoo sets what a zoo.cfg says. The error names everything that cannot be done
// as it says; what is right is set.
func applyZoo(zoo *zoocfg.Result, all []*setting) error {
	var errs []error
	for _, n := range zoo.Refused {
		errs = append(errs, errors.New(n.String()))
	}
	for _, z := range zoo.Settings {
		i := slices.IndexFunc(all, func(s *setting) bool { return s.name == z.Name })
		if i < 0 {
			errs = append(errs, fmt.Errorf("%s: %s: coordd has no setting %q", z.From.Where(), z.From.Key, z.Name))
			continue
		}
		if err := override(all[i], z.Value, zooOrigin(z.From)); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func zooOrigin(e zoocfg.Entry) string {
	if e.Line == 0 {
		return fmt.Sprintf("%s (%s)", e.File, e.Key)
	}
	return e.Where() + " " + e.Key
}

// notes are what is to be known of a zoo.cfg: of keys that just have no meaning
// here, or of all others.
func (f *configFlags) notes(idle bool) (out []string) {
	if f.zoo == nil {
		return nil
	}
	for _, n := range f.zoo.Notes {
		if n.Idle == idle {
			out = append(out, n.String())
		}
	}
	return out
}
