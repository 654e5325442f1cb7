package wallclock

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrUnsupported is returned where the clock of a process cannot be set.
var ErrUnsupported = errors.New("cannot set the clock of a process here")

const (
	// symbol is the function that Go's runtime calls.
	symbol = "__vdso_clock_gettime"
	// room is a function that Go programs do not call: there is the code.
	room = "__vdso_clock_getres"
	// offsetAt is where in the code the offset stands, in seconds.
	offsetAt = 8
	// jumpSize is the size of a jump to any place of the vDSO.
	jumpSize = 5
)

// code does what the vDSO's function did. It keeps all registers but those that a
// system call may change, and uses no stack but for its return address.
//
//	jmp  start
//	nop...                      (to byte 8)
//	offset: .quad 0
//	start:
//	mov  eax, 228               clock_gettime
//	syscall
//	test eax, eax
//	jnz  end
//	test edi, edi               CLOCK_REALTIME is 0
//	jnz  end
//	mov  rcx, [rip+offset]
//	add  [rsi], rcx
//	end: ret
var code = []byte{
	0xeb, 0x0e, // jmp +14 -> 16
	0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
	0, 0, 0, 0, 0, 0, 0, 0, // offset
	0xb8, 0xe4, 0x00, 0x00, 0x00, // 16: mov eax, 228
	0x0f, 0x05, // 21: syscall
	0x85, 0xc0, // 23: test eax, eax
	0x75, 0x0e, // 25: jnz +14 -> 41
	0x85, 0xff, // 27: test edi, edi
	0x75, 0x0a, // 29: jnz +10 -> 41
	0x48, 0x8b, 0x0d, 0xe2, 0xff, 0xff, 0xff, // 31: mov rcx, [rip-30] -> 8
	0x48, 0x01, 0x0e, // 38: add [rsi], rcx
	0xc3, // 41: ret
}

// Clock is the wall clock of a process. One goroutine at a time may use it. It is
// worthless once the process has ended.
type Clock struct {
	pid int
	at  int64 // address of our code in the process
}

// Of finds the clock of a running process, and takes it over. The process is
// stopped for a moment.
func Of(pid int) (*Clock, error) {
	start, end, err := vdso(pid)
	if err != nil {
		return nil, err
	}
	mem, err := os.OpenFile(memory(pid), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	defer mem.Close()
	image := make([]byte, end-start)
	if _, err := mem.ReadAt(image, start); err != nil {
		return nil, fmt.Errorf("%w: read the vDSO: %w", ErrUnsupported, err)
	}
	entry, at, err := find(image)
	if err != nil {
		return nil, err
	}
	if _, err := mem.WriteAt(code, start+at); err != nil {
		return nil, fmt.Errorf("%w: write the vDSO: %w", ErrUnsupported, err)
	}
	// Only the first instructions of the function are replaced, by a jump: a thread
	// that is behind them ends the old one undisturbed.
	jump := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(at-entry-jumpSize)) // jmp rel32
	c := &Clock{pid: pid, at: start + at}
	return c, c.whileNotWithin(start+entry+1, start+entry+jumpSize, func() error {
		_, err := mem.WriteAt(jump, start+entry)
		return err
	})
}

// Step makes the process's wall clock differ by d from the machine's, in whole
// seconds.
func (c *Clock) Step(d time.Duration) error {
	mem, err := os.OpenFile(memory(c.pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(int64(d/time.Second)))
	_, err = mem.WriteAt(b[:], c.at+offsetAt) // eight aligned bytes: no thread sees half of it
	return err
}

func memory(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/mem" }

// vdso finds the page in the process.
func vdso(pid int) (start, end int64, err error) {
	maps, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/maps")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil {
			return 0, 0, fmt.Errorf("%w: %q: %w", ErrUnsupported, line, err)
		}
		return start, end, nil
	}
	return 0, 0, fmt.Errorf("%w: process %d has no vDSO", ErrUnsupported, pid)
}

// find returns where the function is in the image, and where there is room for the
// code.
func find(image []byte) (entry, at int64, err error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, 0, fmt.Errorf("%w: vDSO: %w", ErrUnsupported, err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, 0, fmt.Errorf("%w: vDSO: %w", ErrUnsupported, err)
	}
	entry, err = locate(symbols, symbol, jumpSize)
	if err != nil {
		return 0, 0, err
	}
	at, err = locate(symbols, room, uint64(len(code)))
	return entry, at, err
}

// locate returns where a function of at least size bytes is.
func locate(symbols []elf.Symbol, name string, size uint64) (int64, error) {
	for _, s := range symbols {
		if s.Name != name {
			continue
		}
		if s.Size < size || s.Value%8 != 0 { // the offset must be aligned for Step
			return 0, fmt.Errorf("%w: %s at %#x has %d bytes", ErrUnsupported, name, s.Value, s.Size)
		}
		return int64(s.Value), nil
	}
	return 0, fmt.Errorf("%w: the vDSO has no %s", ErrUnsupported, name)
}

// tries bounds how often it is looked whether no thread is where nothing may be
// changed. The first pauses are short; on a busy machine a thread may need longer to
// come by the kernel, or to get on, so each pause is longer than the last one, ten
// seconds in all.
const (
	tries      = 100
	firstPause = time.Millisecond
)

// whileNotWithin stops the process, and runs f when no thread is about to run what
// is from address from on and before to.
func (c *Clock) whileNotWithin(from, to int64, f func() error) (err error) {
	for try := range tries {
		pause := time.Duration(try+1) * firstPause
		if try > 0 {
			time.Sleep(pause) // stopped again at once, a thread would still be where it was
		}
		if err := syscall.Kill(c.pid, syscall.SIGSTOP); err != nil {
			return err
		}
		time.Sleep(pause) // threads stop when they next come by the kernel
		var free bool
		if free, err = c.free(from, to); free {
			err = f()
		}
		if resume := syscall.Kill(c.pid, syscall.SIGCONT); err != nil || resume != nil || free {
			return errors.Join(err, resume)
		}
	}
	return fmt.Errorf("%w: its threads do not stop", ErrUnsupported)
}

// free says whether all threads have stopped, none of them within.
func (c *Clock) free(from, to int64) (bool, error) {
	dir := "/proc/" + strconv.Itoa(c.pid) + "/task"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, task := range tasks {
		// "running", or the number of the system call and its arguments, or -1;
		// the last two are the stack pointer and the program counter.
		text, err := os.ReadFile(dir + "/" + task.Name() + "/syscall")
		if err != nil {
			return false, nil //nolint:nilerr // the thread has ended: look again
		}
		fields := strings.Fields(string(text))
		if len(fields) < 3 {
			return false, nil
		}
		pc, err := strconv.ParseUint(fields[len(fields)-1], 0, 64)
		if err != nil {
			return false, fmt.Errorf("%w: %q: %w", ErrUnsupported, text, err)
		}
		if pc >= uint64(from) && pc < uint64(to) {
			return false, nil
		}
	}
	return true, nil
}
