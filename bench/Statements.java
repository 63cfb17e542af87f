import java.util.Scanner;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Runs the SQL statements of its input, one a line, each to its end, and prints the seconds that each took. Arguments: Flink's settings. */
class Statements {
    public static void main(String[] settings) throws Exception {
        var configuration = new Configuration();
        for (String setting : settings)
            configuration.setString(setting.substring(0, setting.indexOf('=')), setting.substring(setting.indexOf('=') + 1));
        var tables = TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build());
        var lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            long began = System.nanoTime();
            tables.executeSql(lines.nextLine()).await();
            System.out.println((System.nanoTime() - began) / 1e9);
            System.out.flush();
        }
    }
}
