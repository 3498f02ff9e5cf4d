# Run a command as if by root, without privileges: a seccomp filter lets the system calls that only root may use succeed
# without doing anything, and getuid and its like return 0. In Perl, which every Debian and Ubuntu has for dpkg.
use strict;
chomp(my $machine = `uname -m`);
# the machine's number in <linux/audit.h>, then the numbers of: chown lchown fchown fchownat setuid setgid setreuid
# setregid setgroups setresuid setresgid setfsuid setfsgid capset getuid geteuid getgid getegid
my %calls = (
    x86_64 => [0xC000003E, 92, 94, 93, 260, 105, 106, 113, 114, 116, 117, 119, 122, 123, 126, 102, 107, 104, 108],
    # it has no chown and lchown
    aarch64 => [0xC00000B7, 55, 54, 146, 144, 145, 143, 159, 147, 149, 151, 152, 91, 174, 175, 176, 177],
);
my ($audit, @numbers) = @{ $calls{$machine} or die "as-root.pl: the machine $machine is not known\n" };
my $prctl = { x86_64 => 157, aarch64 => 167 }->{$machine};
# <linux/bpf_common.h>: load a word, jump if equal, return; <linux/seccomp.h>: allow, or errno 0 instead of the call
my ($load, $equal, $return, $allow, $pretend) = (0x20, 0x15, 0x06, 0x7fff0000, 0x00050000);
my @program = ([$load, 0, 0, 4], [$equal, 1, 0, $audit], [$return, 0, 0, $allow], [$load, 0, 0, 0]);
push @program, [$equal, @numbers - $_, 0, $numbers[$_]] for 0 .. $#numbers;
push @program, [$return, 0, 0, $allow], [$return, 0, 0, $pretend];
my $filter = join '', map { pack 'SCCL', @$_ } @program;
# PR_SET_NO_NEW_PRIVS, then PR_SET_SECCOMP with SECCOMP_MODE_FILTER
syscall($prctl, 38, 1, 0, 0, 0) == 0 or die "as-root.pl: no_new_privs: $!\n";
syscall($prctl, 22, 2, pack('S x![P] P', scalar @program, $filter)) == 0 or die "as-root.pl: seccomp: $!\n";
# Packages may leave processes running, for whose end the caller would wait: whoever loses its parent becomes a child of
# this one (PR_SET_CHILD_SUBREAPER), which ends them all.
syscall($prctl, 36, 1, 0, 0, 0) == 0 or die "as-root.pl: subreaper: $!\n";
my $child = fork // die "as-root.pl: fork: $!\n";
$child or exec { $ARGV[0] } @ARGV or die "as-root.pl: $ARGV[0]: $!\n";
$SIG{$_} = sub { kill $_[0], $child } for qw(HUP INT TERM);
1 while waitpid($child, 0) != $child;
my $status = $?;
while (my @left = children()) {
    kill 'KILL', @left;
    waitpid $_, 0 for @left;
}
exit($status & 127 ? 128 + ($status & 127) : $status >> 8);

# Return the process ids of the children.
sub children {
    my @found;
    for my $path (glob '/proc/[0-9]*/stat') {
        open my $file, '<', $path or next;
        my ($id, $parent) = (<$file> // '') =~ /^(\d+) \(.*\) \S (\d+) / or next;
        push @found, $id if $parent == $$;
    }
    return @found;
}
